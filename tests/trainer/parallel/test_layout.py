"""Places of processes, the groups they are in, and what is random in each of them."""

from typing import Any

import numpy as np
import paddle
import pytest

from tests.ranks import run_ranks
from trainer.config.problems import ConfigError
from trainer.parallel.layout import Layout, start
from trainer.parallel.topology import Topology

TWO_OF_EACH = Topology(tensor=2, pipeline=2, data=2)
SHARDED = Topology(tensor=2, sharding=2, data=2, stage=1)
SHARDED_PAIR = Topology(tensor=2, sharding=2, stage=1)


def _place(topology: Topology) -> dict[str, Any]:
    layout = start(topology, seed=3)
    groups = {name: getattr(layout, f"{name}_group") for name in ("tensor", "pipeline", "sharding", "dp")}
    return {
        "place": (layout.dp_rank, layout.pipeline_rank, layout.sharding_rank, layout.tensor_rank),
        "rank": layout.rank,
        "data_rank": layout.data_rank,
        "ends": (layout.is_first_stage, layout.is_last_stage, layout.is_main),
        "groups": {name: group.ranks for name, group in groups.items() if group is not None},
    }


def _draws(topology: Topology, step: int) -> tuple[Any, Any]:
    from paddle.distributed.fleet.layers.mpu.random import get_rng_state_tracker

    layout = start(topology, seed=3)
    paddle.rand([5])  # whatever came before does not count
    layout.seed_step(3, step)
    with get_rng_state_tracker().rng_state():
        split = paddle.rand([4]).tolist()
    return paddle.rand([4]).tolist(), split


def _draws_before_training(topology: Topology) -> Any:
    start(topology, seed=3)
    return paddle.rand([4]).tolist()


def _settings(topology: Topology) -> dict[str, Any]:
    from paddle.distributed import fleet

    layout = start(topology, seed=3)
    layout.set_schedule(4, 2)
    strategy: Any = fleet.fleet
    strategy = strategy._user_defined_strategy
    return {
        "pipeline": dict(strategy.pipeline_configs),
        "split_param": strategy.hybrid_configs["sharding_configs"].split_param,
        "broadcast": strategy.hybrid_configs["mp_configs"].need_broadcast_data,
        "clear": strategy.hybrid_configs["pp_configs"].clear_every_step_cache,
    }


def test_ranks_are_numbered_by_data_pipeline_sharding_and_tensor_parallelism_from_slow_to_fast() -> None:
    places = run_ranks(8, _place, TWO_OF_EACH)
    assert [place["rank"] for place in places] == [*range(8)]
    numbers = [4 * dp + 2 * stage + tensor for dp, stage, _, tensor in (place["place"] for place in places)]
    assert numbers == [*range(8)]
    assert [place["ends"] for place in places[:4]] == [
        (True, False, True),
        (True, False, False),
        (False, True, False),
        (False, True, False),
    ]
    assert places[5]["groups"] == {"tensor": [4, 5], "pipeline": [5, 7], "dp": [1, 5]}


def test_shares_of_the_data_are_numbered_by_data_parallelism_and_then_sharding() -> None:
    places = run_ranks(8, _place, SHARDED)
    assert [place["data_rank"] for place in places] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert places[3]["groups"] == {"tensor": [2, 3], "sharding": [1, 3], "dp": [3, 7]}


def test_a_single_process_needs_no_groups() -> None:
    layout = start(Topology(), seed=3)
    assert layout == Layout.single()
    assert (layout.rank, layout.data_rank, layout.hcg, layout.tensor_group) == (0, 0, None, None)
    assert layout.is_main
    assert layout.is_first_stage
    assert layout.is_last_stage


def test_another_number_of_processes_than_the_topology_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 processes were started for a topology of 2"):
        start(Topology(tensor=2), seed=3)


@pytest.mark.parametrize("step", [0, 1, 70000])
def test_a_single_process_draws_what_it_always_drew(step: int) -> None:
    paddle.seed(int(np.random.SeedSequence((11, step)).generate_state(1)[0]))
    expected = paddle.rand([8]).numpy()
    Layout.single().seed_step(11, step)
    assert np.array_equal(paddle.rand([8]).numpy(), expected)


def test_replicated_tensors_draw_the_same_where_a_layer_is_split_and_different_numbers_elsewhere() -> None:
    draws = run_ranks(8, _draws, TWO_OF_EACH, 5)
    replicated = [tuple(replicated) for replicated, _ in draws]
    assert replicated[0::2] == replicated[1::2]
    assert len(set(replicated)) == 4
    Layout.single().seed_step(3, 5)
    assert list(replicated[0]) == paddle.rand([4]).tolist()


def test_split_tensors_draw_different_numbers_in_every_process_and_step() -> None:
    draws = [*run_ranks(4, _draws, SHARDED_PAIR, 5), *run_ranks(4, _draws, SHARDED_PAIR, 6)]
    assert len({tuple(split) for _, split in draws}) == 8
    assert len({tuple(replicated) for replicated, _ in draws}) == 4


def test_a_step_draws_the_same_again() -> None:
    assert run_ranks(2, _draws, Topology(tensor=2), 5) == run_ranks(2, _draws, Topology(tensor=2), 5)


def test_what_is_drawn_before_the_first_step_is_the_same_where_a_layer_is_split() -> None:
    first, second = run_ranks(2, _draws_before_training, Topology(tensor=2))
    assert first == second


def test_fleet_is_told_of_split_parameters_schedules_and_own_batches() -> None:
    settings = run_ranks(2, _settings, Topology(sharding=2, stage=1, split_param=True))
    assert settings[0]["split_param"]
    assert not settings[0]["broadcast"]
    assert settings[0]["clear"]
    pipeline = settings[0]["pipeline"]
    assert (pipeline["accumulate_steps"], pipeline["micro_batch_size"]) == (4, 2)
    assert pipeline["enable_partial_send_recv"]


def test_parts_of_a_sequence_are_not_cut_again_between_stages() -> None:
    topology = Topology(tensor=2, pipeline=2, sequence_parallel=True)
    settings = run_ranks(4, _settings, topology)
    assert not settings[0]["pipeline"]["enable_partial_send_recv"]
