"""What a task does otherwise over several processes: which part of a model is here, and how it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from trainer.config.topology import Topology
from trainer.loop.engine import Engine, SingleEngine
from trainer.models.base import CausalLM
from trainer.models.configuration import ModelConfig
from trainer.models.placement import Placement, TensorRank
from trainer.parallel.communication import gather_objects, meet
from trainer.parallel.layout import Layout, start
from trainer.parallel.pipeline_stages import stages_of
from trainer.parallel.update import Updater

if TYPE_CHECKING:
    from trainer.config.schema import RunConfig

T = TypeVar("T")


def join(config: RunConfig) -> Layout:
    """The place of this process among those that the launcher started; alone without one.

    Raises:
        ConfigError: the degrees of `config` do not fit their number.
    """
    world = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    return start(Topology.of(config, world), config.seed)


def placement(layout: Layout, config: ModelConfig) -> Placement:
    """Which part of a model is here.

    Raises:
        ConfigError: it has too few layers for the pipeline.
    """
    topology = layout.topology
    tensor = stages = None
    if topology.tensor > 1:
        sequence = topology.sequence_parallel
        tensor = TensorRank(layout.tensor_rank, topology.tensor, layout.tensor_group, sequence)
    if topology.pipeline > 1:
        stages = stages_of(topology, layout.pipeline_rank, config.num_hidden_layers)
    return Placement(tensor, stages)


def make_engine(
    model: CausalLM, layout: Layout, autocast: Callable[[], AbstractContextManager[None]]
) -> Engine:
    """What runs a model that was built for `placement`."""
    if layout.topology.single:
        return SingleEngine(model, autocast)
    if layout.topology.pipeline > 1:
        from trainer.parallel.pipeline import PipelineEngine

        return PipelineEngine(model, layout, autocast)
    from trainer.parallel.engine import ParallelEngine

    return ParallelEngine(model, layout, autocast)


def tied_parameters(engine: Engine) -> frozenset[str]:
    """Paddle's names of the parameters that two stages of a pipeline share."""
    from trainer.parallel.pipeline import PipelineEngine

    return engine.tied if isinstance(engine, PipelineEngine) else frozenset()


def begin_training(engine: Engine, update: Updater) -> None:
    """Let an engine know what will change its model."""
    from trainer.parallel.engine import ParallelEngine

    if isinstance(engine, ParallelEngine):
        engine.updater = update


def from_host(layout: Layout, make: Callable[[], T]) -> list[T]:
    """What `make` gives in the first process of each host that shares no folder with others, by host; the
    same list in all processes, however long it takes there.
    """
    made = make() if layout.is_host_main else None
    meet(layout)
    found: list[Any] = gather_objects(layout, made)
    return found[:: len(found) // layout.separate_hosts]


def from_main(layout: Layout, make: Callable[[], T]) -> T:
    """What `make` gives in the main process, in all of them; however long it takes there."""
    made = make() if layout.is_main else None
    meet(layout)
    found: T | None = gather_objects(layout, made)[0]
    return found  # type: ignore[return-value]
