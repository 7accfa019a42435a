"""What processes tell each other: sums, agreements, tensors of the last stage, objects."""

import time
from typing import Any

import numpy as np
import paddle

from tests.ranks import run_ranks
from trainer.parallel.communication import (
    any_rank,
    broadcast_from_last_stage,
    gather_objects,
    meet,
    sum_over_data,
    sum_over_world,
)
from trainer.parallel.layout import Layout, start
from trainer.parallel.topology import Topology

MIXED = Topology(tensor=2, sharding=2, data=2, stage=1)
PIPELINE = Topology(pipeline=2, data=2)
PRECISE = 1.0 + 2.0**-40  # float32 would lose the second term


def _sums(topology: Topology) -> tuple[list[list[float]], float]:
    layout = start(topology, seed=1)
    values = np.array([[10.0**layout.data_rank, PRECISE]])
    world = sum_over_world(layout, np.array([2.0**layout.rank]))
    return sum_over_data(layout, values).tolist(), float(world[0])


def _agreements(topology: Topology) -> list[bool]:
    layout = start(topology, seed=1)
    return [any_rank(layout, False), any_rank(layout, layout.rank == 2), any_rank(layout, True)]


def _broadcast(topology: Topology) -> list[Any]:
    layout = start(topology, seed=1)
    tensors = [paddle.full([2], float(layout.rank)), paddle.full([1], 10.0 * layout.rank)]
    broadcast_from_last_stage(layout, tensors)
    return [tensor.tolist() for tensor in tensors]


def _gather(topology: Topology) -> list[Any]:
    layout = start(topology, seed=1)
    return gather_objects(layout, {"rank": layout.rank, "text": "x" * 100 * layout.rank})


def _meetings(topology: Topology) -> list[float]:
    layout = start(topology, seed=1)
    times = []
    for late in (1, 0):
        if layout.rank == late:
            time.sleep(0.5)
        times.append(time.monotonic())
        meet(layout)
        times.append(time.monotonic())
    return times


def test_shares_of_the_data_add_up_in_float64_and_others_do_not_count_twice() -> None:
    results = run_ranks(8, _sums, MIXED)
    assert all(result == ([[1111.0, 4 * PRECISE]], 255.0) for result in results)


def test_what_one_process_says_counts_for_all() -> None:
    assert run_ranks(4, _agreements, PIPELINE) == [[False, True, True]] * 4


def test_the_last_stage_gives_its_tensors_to_its_own_pipeline() -> None:
    # ranks 0 and 1 are the pipeline of the first share of the data, 2 and 3 that of the second
    results = run_ranks(4, _broadcast, PIPELINE)
    assert results == [[[1.0, 1.0], [10.0]]] * 2 + [[[3.0, 3.0], [30.0]]] * 2


def test_objects_of_different_sizes_come_in_the_order_of_ranks() -> None:
    results = run_ranks(3, _gather, Topology(data=3))
    expected = [{"rank": rank, "text": "x" * 100 * rank} for rank in range(3)]
    assert results == [expected] * 3


def test_processes_wait_for_the_slowest_one() -> None:
    first, second = run_ranks(2, _meetings, Topology(data=2))
    assert min(first[1], second[1]) >= max(first[0], second[0])
    assert min(first[3], second[3]) >= max(first[2], second[2])


def test_in_a_single_process_everything_is_itself() -> None:
    layout = Layout.single()
    values = np.array([1.0, PRECISE])
    assert np.array_equal(sum_over_data(layout, values), values)
    assert np.array_equal(sum_over_world(layout, values), values)
    assert any_rank(layout, True)
    assert not any_rank(layout, False)
    tensor = paddle.ones([2])
    broadcast_from_last_stage(layout, [tensor])
    assert tensor.tolist() == [1.0, 1.0]
    assert gather_objects(layout, "me") == ["me"]
    meet(layout)
