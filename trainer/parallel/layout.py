"""This process's place among all that train together, and the groups it talks in.

Ranks are numbered with data parallelism outermost, then pipeline, sharding and tensor parallelism, so that
processes which split a layer are neighbours.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.distributed import fleet
from paddle.distributed.fleet.layers.mpu import random as tensor_random

from trainer.config.problems import ConfigError
from trainer.launcher.command import SEPARATE_HOSTS
from trainer.parallel import cpu
from trainer.parallel.topology import Topology


@dataclass(frozen=True)
class Layout:
    """The place of this process and its groups; a group of one process is None.

    Attributes:
        topology: the degrees of all groups.
        rank: number among all processes.
        tensor_rank: which part of each layer is here.
        pipeline_rank: which stage of the pipeline this is, from 0.
        sharding_rank: place among the processes that share out optimizer state.
        dp_rank: place among the processes that hold the same.
        tensor_group: Paddle's group of the processes that split each layer. Likewise the other groups.
        hcg: Fleet's own description of all groups; None in a single process.
        separate_hosts: how many hosts there are, where they share no folder; else 1. All have as many
            processes.
    """

    topology: Topology
    rank: int = 0
    tensor_rank: int = 0
    pipeline_rank: int = 0
    sharding_rank: int = 0
    dp_rank: int = 0
    tensor_group: Any = None
    pipeline_group: Any = None
    sharding_group: Any = None
    dp_group: Any = None
    hcg: Any = None
    separate_hosts: int = 1

    @classmethod
    def single(cls) -> Layout:
        """The layout of one process that trains alone: without groups, and without Fleet."""
        return cls(Topology())

    @property
    def data_rank(self) -> int:
        """Which share of the micro-batches is this process's, from 0 to `topology.data_ways - 1`."""
        return self.dp_rank * self.topology.sharding + self.sharding_rank

    @property
    def is_first_stage(self) -> bool:
        """Whether the pipeline begins here."""
        return self.pipeline_rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether the pipeline ends here."""
        return self.pipeline_rank == self.topology.pipeline - 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that reports and writes what is written once."""
        return self.rank == 0

    @property
    def host(self) -> int:
        """Number of the host, among those that share no folder."""
        return self.rank // (self.topology.world // self.separate_hosts)

    @property
    def is_host_main(self) -> bool:
        """Whether this is the first of the processes that share folders."""
        return self.rank % (self.topology.world // self.separate_hosts) == 0

    def seed_step(self, seed: int, step: int) -> None:
        """Seed Paddle for one step; what is random in it depends on seed, step and place alone.

        Paddle's default generator gets the same seed in all processes that split a layer, because they must
        drop the same elements of what they all hold; another one for each share of the data and each stage of
        a pipeline. Fleet's tensor-parallel generator, for tensors that are split, gets a seed of its own in
        every process.
        """
        place = (self.data_rank, self.pipeline_rank)
        if self.hcg is not None:
            # first, because on a GPU it seeds the default generator of the CPU too
            with tensor_random.get_rng_state_tracker().rng_state():
                paddle.seed(_step_seed(seed, step, (*place, self.tensor_rank)))
        paddle.seed(_step_seed(seed, step, place if any(place) else ()))

    def set_schedule(self, micro_batches: int, rows: int = 1) -> None:
        """Tell Fleet how many micro-batches of how many rows a step has, before it is given a pipeline."""
        configs = {
            "accumulate_steps": micro_batches,
            "micro_batch_size": rows,
            # Parts of a sequence must not be cut again on their way: results would be wrong without an error.
            "enable_partial_send_recv": not self.topology.sequence_parallel,
        }
        environment: Any = fleet.fleet
        environment._user_defined_strategy.pipeline_configs = configs


def start(topology: Topology, seed: int) -> Layout:
    """Join the other processes and make the groups; on CPU, after adding what Fleet lacks there.

    Called once in a process, after the device was chosen. A topology of one process needs none of this.

    Args:
        topology: the degrees; their product is the number of processes that the launcher started.
        seed: for what is random before the first step, as new weights of adapters: the same in all processes
            that split a layer.

    Raises:
        ConfigError: the launcher started another number of processes.
    """
    started = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    if started != topology.world:
        raise ConfigError(f"{started} processes were started for a topology of {topology.world}: {topology}")
    if topology.single:
        return Layout.single()
    if cpu.install():
        os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
    fleet.init(is_collective=True, strategy=_strategy(topology))
    hcg: Any = fleet.get_hybrid_communicate_group()
    tensor_random.model_parallel_random_seed(seed + 1)  # 0 would mean a random one
    layout = Layout(
        topology=topology,
        rank=hcg.get_global_rank(),
        tensor_rank=hcg.get_model_parallel_rank(),
        pipeline_rank=hcg.get_stage_id(),
        sharding_rank=hcg.get_sharding_parallel_rank(),
        dp_rank=hcg.get_data_parallel_rank(),
        tensor_group=hcg.get_model_parallel_group() if topology.tensor > 1 else None,
        pipeline_group=hcg.get_pipe_parallel_group() if topology.pipeline > 1 else None,
        sharding_group=hcg.get_sharding_parallel_group() if topology.sharding > 1 else None,
        dp_group=hcg.get_data_parallel_group() if topology.data > 1 else None,
        hcg=hcg,
        separate_hosts=_separate_hosts(topology.world),
    )
    layout.set_schedule(1)
    layout.seed_step(seed, 0)
    return layout


def _separate_hosts(world: int) -> int:
    """How many hosts that share no folder the launchers have started processes on; 1 where they share."""
    return world // int(os.environ["PADDLE_LOCAL_SIZE"]) if os.environ.get(SEPARATE_HOSTS) else 1


def _strategy(topology: Topology) -> Any:
    """Fleet's settings for a topology."""
    strategy: Any = fleet.DistributedStrategy()
    strategy.hybrid_configs = {
        "dp_degree": topology.data,
        "mp_degree": topology.tensor,
        "pp_degree": topology.pipeline,
        "sharding_degree": topology.sharding,
        "sep_degree": 1,
    }
    configs: Any = strategy.hybrid_configs
    # All processes that split a layer make the same batch, and compute the same replicated weights.
    configs["mp_configs"].need_broadcast_data = False
    configs["mp_configs"].sync_param = False
    configs["sharding_configs"].split_param = topology.split_param
    if paddle.device.get_device() == "cpu":
        configs["sharding_configs"].use_reduce_avg = False  # gloo has no average
    # Steps differ in length, so what a stage knows of the shapes it is sent must not outlive a step.
    configs["pp_configs"].clear_every_step_cache = True
    return strategy


def _step_seed(seed: int, step: int, place: tuple[int, ...]) -> int:
    return int(np.random.SeedSequence((seed, step), spawn_key=place).generate_state(1)[0])
