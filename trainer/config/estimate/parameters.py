"""How many numbers a job trains, how many it only holds, and how many of them are in one process."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer.config.estimate.architecture import Architecture, Linear
from trainer.config.estimate.constants import SEGMENT_SIZE
from trainer.config.schema import TaskConfig, TrainingConfig
from trainer.config.topology import Topology


@dataclass(frozen=True)
class Held:
    """Numbers in one process, before sharding spreads any of them.

    Attributes:
        base: of the model, without an adapter.
        adapter: of the adapter; always float32.
        largest: of the largest tensor among them.
        layer: of one decoder layer.
    """

    base: int
    adapter: int
    largest: int
    layer: int


def adapter_parameters(model: Architecture, config: TaskConfig) -> int:
    """Numbers in the adapter that a job trains or evaluates; 0 without one."""
    layers = range(model.layers)
    return sum(_lora(model, config, layers, 1)) + _prefix(model, config)


def trains_adapter(config: TaskConfig) -> bool:
    """Whether an adapter takes the place of the model's parameters in training."""
    return isinstance(config, TrainingConfig) and (config.lora or getattr(config, "prefix_tuning", False))


def held(
    model: Architecture, config: TaskConfig, topology: Topology, layers: Sequence[int], *, ends: str
) -> Held:
    """What a process with these decoder layers holds.

    Args:
        ends: which ends of the model are there as well: "first", "last", "both" or "none".
    """
    tensor = topology.tensor
    layer = model.layer(tensor)
    base = layer * len(layers)
    first, last = ends in ("first", "both"), ends in ("last", "both")
    if first:
        base += model.embedding(tensor) + model.embedding_vectors
    if last:
        base += model.final_vectors
        if not (first and model.tied):
            base += model.embedding(tensor)
    adapter = sum(_lora(model, config, layers, tensor)) + _prefix(model, config)
    matrices = [linear.numbers(model.ranks(linear, tensor)) for linear in model.linears]
    largest = max([*matrices, model.embedding(tensor) if first or last else 0])
    return Held(base, adapter, largest, layer)


def sharded(total: int, largest: int, topology: Topology, from_stage: int) -> int:
    """What of `total` numbers stays in one process of a sharding group.

    Whole tensors are dealt out, so the process with the largest tensor may hold more than its share; only
    `split_param` and stage 3 cut tensors.

    Args:
        from_stage: the stage from which numbers of this kind are spread.
    """
    if topology.stage < from_stage or topology.sharding == 1:
        return total
    share = math.ceil(total / topology.sharding)
    if topology.split_param or (topology.stage == 3 and largest > SEGMENT_SIZE):
        return share
    return min(total, max(share, largest))


def lora_linears(model: Architecture, config: TaskConfig, layer: int) -> list[Linear]:
    """The linear layers of a decoder layer that get an adapter."""
    if not isinstance(config, TrainingConfig) or not config.lora:
        return []
    names = config.target_modules or ()
    paths = {linear.path.format(layer): linear for linear in model.linears}
    return [linear for path, linear in paths.items() if not names or _is_named(path, names)]


def _is_named(path: str, names: Sequence[str]) -> bool:
    """The whole path, or its end."""
    return any(path == name or path.endswith(f".{name}") for name in names)


def _lora(model: Architecture, config: TaskConfig, layers: Sequence[int], tensor: int) -> Iterator[int]:
    """Numbers in the two matrices beside each adapted layer, of which one is split where the layer is."""
    if not isinstance(config, TrainingConfig):
        return
    for layer in layers:
        for linear in lora_linears(model, config, layer):
            yield config.lora_rank * sum(linear.local(model.ranks(linear, tensor)))


def _prefix(model: Architecture, config: TaskConfig) -> int:
    """Keys and values of every layer for each prefix token, or the network that computes them."""
    if not getattr(config, "prefix_tuning", False):
        return 0
    tokens: int = getattr(config, "num_prefix_tokens", 0)
    width = model.key_width
    outputs = 2 * model.layers * width
    if not getattr(config, "prefix_projection", False):
        return tokens * outputs
    inner = getattr(config, "prefix_projection_hidden_size", None) or width
    return tokens * width + (width + 1) * inner + (inner + 1) * outputs
