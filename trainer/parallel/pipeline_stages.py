"""Which stages of a model each process of a pipeline holds.

A model's stages are its embedding (number 0), its layers (1 to n) and its final norm with the head (n + 1).
They are cut into pipeline * virtual chunks of consecutive stages; process p of the pipeline holds the chunks
p, p + pipeline, p + 2 pipeline, …
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from trainer.config.problems import ConfigError
from trainer.config.splitting import too_few_layers
from trainer.config.topology import Topology


def chunks_of(topology: Topology, layers: int) -> list[range]:
    """The stage numbers of every chunk, for a model with so many layers.

    Layers are spread evenly. Where they do not divide, the chunks in the middle get one more: the first has
    the embedding besides, and the last the head, which is dearer still.

    Raises:
        ConfigError: there would be chunks without a layer.
    """
    if problem := too_few_layers(topology, layers):
        raise ConfigError(problem)
    count = topology.pipeline * topology.virtual
    share, left_over = divmod(layers, count)
    larger = [*range(1, count - 1), 0][:left_over]
    sizes = [share + (chunk in larger) for chunk in range(count)]
    edges = [0, *(layer + 1 for layer in accumulate(sizes))]
    edges[-1] += 1
    return [range(start, stop) for start, stop in pairwise(edges)]


def stages_of(topology: Topology, pipeline_rank: int, layers: int) -> frozenset[int]:
    """The numbers of the stages that a process of the pipeline holds; raises as `chunks_of`."""
    chunks = chunks_of(topology, layers)[pipeline_rank :: topology.pipeline]
    return frozenset(stage for chunk in chunks for stage in chunk)
