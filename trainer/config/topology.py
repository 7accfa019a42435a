"""How many processes train and what each group of them splits: the degrees of a config, resolved."""

import math
from dataclasses import dataclass
from typing import Literal, Self, cast

from trainer.config.problems import ConfigError, Problem
from trainer.config.schema import DEGREES, QuantizeConfig, TaskConfig, TrainingConfig

Stage = Literal[0, 1, 2, 3]


@dataclass(frozen=True)
class Topology:
    """The degrees of parallelism; their product (`virtual` aside) is the number of processes.

    Attributes:
        tensor: processes that split each layer.
        pipeline: processes that split the list of layers.
        virtual: chunks of layers that each process of a pipeline holds.
        sharding: processes that share out the optimizer state (and more, see `stage`) and take data of their
            own.
        data: processes that hold the same and take data of their own.
        stage: what sharding shares out. 0: nothing; 1: optimizer state; 2: gradients too; 3: weights too.
        split_param: stage 1 cuts each parameter in equal parts instead of dealing out whole ones.
        sequence_parallel: activations between the split matrices are split along the sequence.
    """

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    sharding: int = 1
    data: int = 1
    stage: Stage = 0
    split_param: bool = False
    sequence_parallel: bool = False

    @classmethod
    def of(cls, config: TaskConfig, world_size: int | None = None) -> Self:
        """The degrees of `config` on so many processes; what is left of them becomes data parallel.

        Args:
            world_size: None: as few processes as the degrees need.

        Raises:
            ConfigError: the degrees do not divide `world_size`.
        """
        if problem := misfit(config, config.world_size() if world_size is None else world_size):
            raise ConfigError(problem)
        world = world_size or config.world_size()
        if not isinstance(config, TrainingConfig):
            return cls()
        tensor, pipeline = max(config.tensor_parallel_degree, 1), max(config.pipeline_parallel_degree, 1)
        rest = world // (tensor * pipeline)
        sharding = 1
        if config.sharding:
            sharding = rest if config.sharding_parallel_degree == -1 else config.sharding_parallel_degree
        return cls(
            tensor=tensor,
            pipeline=pipeline,
            virtual=config.virtual_pp_degree if pipeline > 1 else 1,
            sharding=sharding,
            data=rest // sharding,
            stage=_stage(config.sharding) if sharding > 1 else 0,
            split_param=sharding > 1 and "split_param" in config.sharding_parallel_config.split(),
            sequence_parallel=config.sequence_parallel and tensor > 1,
        )

    @property
    def world(self) -> int:
        """How many processes there are."""
        return math.prod((self.tensor, self.pipeline, self.sharding, self.data))

    @property
    def data_ways(self) -> int:
        """How many processes, or groups of them, work on micro-batches of their own."""
        return self.data * self.sharding

    @property
    def single(self) -> bool:
        """Whether there is one process, so that nothing is split and nobody is talked to."""
        return self.world == 1


#: Nothing is split.
ONE_PROCESS = Topology()


def misfit(config: TaskConfig, world_size: int) -> Problem | None:
    """Why `config` cannot run on so many devices, with the arithmetic; None when it can."""
    if not isinstance(config, TrainingConfig) or isinstance(config, QuantizeConfig):
        if world_size == 1:
            return None
        msg = f"task {config.task} on {world_size} devices, expected 1: nothing of it can be split"
        return Problem((), msg, "Ask for one device.")
    needed = config.world_size()
    if world_size % needed == 0:
        return None
    degrees = config.parallel_degrees()
    product = " x ".join(f"{name} {degree}" for name, degree in degrees.items())
    have = _devices(world_size)
    multiple = world_size // needed * needed
    if multiple:
        relation, remedy = f"which does not divide {have}", f"{multiple} or {multiple + needed}"
    else:
        relation, remedy = f"more than there are ({have})", f"{needed}"
    msg = f"{product} = {needed} devices, {relation}"
    return Problem((next(iter(degrees)),), msg, f"Ask for {remedy} devices, or lower the degrees.")


def sharing_with_nobody(config: TaskConfig, topology: Topology) -> Problem | None:
    """The warning that sharding has no effect because one device is left for it, with the arithmetic."""
    if not isinstance(config, TrainingConfig) or not config.sharding or topology.sharding > 1:
        return None
    if config.sharding_parallel_degree == 1:
        msg = f"{config.sharding} has no effect with sharding_parallel_degree 1"
        return Problem(("sharding",), msg, "Leave one of them out.")
    others = {name: config.parallel_degrees().get(name, 1) for name in DEGREES}
    divided = "".join(f" / {name} {degree}" for name, degree in others.items() if degree > 1)
    msg = f"{config.sharding} has no effect: {_devices(topology.world)}"
    if divided:
        msg += f"{divided} = {topology.data_ways} for sharding"
    return Problem(("sharding",), msg, "Ask for more devices, or leave it out.")


def _devices(count: int) -> str:
    return f"{count} device{'s' if count > 1 else ''}"


def _stage(words: str) -> Stage:
    """The number in `stage1`, `stage2` or `stage3`."""
    number = next((word[-1] for word in words.split() if word.startswith("stage")), "0")
    return cast(Stage, int(number))
