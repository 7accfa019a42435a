"""What processes tell each other besides tensors of the model. In a single process all of it is nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import paddle
import paddle.distributed as distributed
from paddle import Tensor
from paddle.base import core

from trainer.parallel.layout import Layout

T = TypeVar("T")

MEETING_TIMEOUT_S = 1800
"""How long `meet` waits for the slowest process."""

_POLL_S = 0.02
_meetings = itertools.count()


def sum_over_data(layout: Layout, values: np.ndarray) -> np.ndarray:
    """Elementwise sum of the shares of the data; float64 of the shape of `values`, equal everywhere.

    Processes that work on the same share (those that split layers, or the list of layers) each bring its sum,
    and get the whole.
    """
    return _sum(values, [layout.dp_group, layout.sharding_group])


def sum_over_world(layout: Layout, values: np.ndarray) -> np.ndarray:
    """Elementwise sum over all processes; float64 of the shape of `values`, equal everywhere."""
    groups = [layout.tensor_group, layout.sharding_group, layout.pipeline_group, layout.dp_group]
    return _sum(values, groups)


def any_rank(layout: Layout, flag: bool) -> bool:
    """Whether `flag` is true in any process; all agree on the answer."""
    return bool(sum_over_world(layout, np.array([float(flag)]))[0] > 0)


def broadcast_from_last_stage(layout: Layout, tensors: Sequence[Tensor]) -> None:
    """Overwrite `tensors` in every stage of the pipeline by those of its last one.

    All stages pass tensors of the same shapes and dtypes, in the same order.
    """
    if layout.pipeline_group is None:
        return
    for tensor in tensors:
        distributed.broadcast(tensor, src=layout.pipeline_group.ranks[-1], group=layout.pipeline_group)


def gather_objects(layout: Layout, value: T) -> list[T]:
    """The values of all processes in the order of ranks; they have to be small, and picklable."""
    if layout.topology.single:
        return [value]
    gathered: list[Any] = []
    distributed.all_gather_object(gathered, value)
    return gathered


def meet(layout: Layout) -> None:
    """Wait until every process is here, however long one of them works alone.

    A collective of gloo fails when a process comes more than 30 seconds late; this one does not.

    Raises:
        TimeoutError: some were not here within `MEETING_TIMEOUT_S`.
    """
    if layout.topology.single:
        return
    store = core.create_or_get_global_tcp_store()
    key = f"regatta/meeting/{next(_meetings)}"
    present = store.add(key, 1)
    deadline = time.monotonic() + MEETING_TIMEOUT_S
    while present < layout.topology.world:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{layout.topology.world - present} processes did not come")
        time.sleep(_POLL_S)
        present = store.add(key, 0)


def _sum(values: np.ndarray, groups: Sequence[Any]) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0 or all(group is None for group in groups):
        return values
    total = paddle.to_tensor(values.reshape([-1]))
    for group in groups:
        if group is not None:
            distributed.all_reduce(total, group=group)
    return total.numpy().reshape(values.shape)
