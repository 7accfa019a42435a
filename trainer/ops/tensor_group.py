"""What goes between the ranks of a tensor group, which split every layer, and the gradients of that.

Each function has the group's ranks wait for one another, so all of them must call it in the same order.
`group` is Paddle's communication group everywhere.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, cast

import paddle.distributed as distributed
from paddle import Tensor
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddle.distributed.fleet.layers.mpu.random import get_rng_state_tracker
from paddle.distributed.fleet.utils.sequence_parallel_utils import (
    AllGatherOp,
    GatherOp,
    ReduceScatterOp,
    ScatterOp,
)


def copied(x: Tensor, group: Any) -> Tensor:
    """`x`, which is the same on every rank and used differently: its gradients are summed over the ranks."""
    return cast(Tensor, mp_ops._c_identity(x, group=group))


def summed(x: Tensor, group: Any) -> Tensor:
    """The sum of every rank's `x`, which is overwritten; each rank gets the gradient of the sum."""
    return cast(Tensor, mp_ops._mp_allreduce(x, group=group))


def joined_columns(x: Tensor, group: Any) -> Tensor:
    """Every rank's `x [rows, width]` side by side, `[rows, size * width]`.

    The gradient of a rank's columns is what this rank does with them: all ranks must do the same.
    """
    return cast(Tensor, mp_ops._c_concat(x, group=group))


def own_rows(x: Tensor) -> Tensor:
    """The rank's part of the rows of `x`, which is the same on every rank; their number divides by the size.

    Gradients come together again from all ranks.
    """
    return ScatterOp.apply(x)


def joined_rows(x: Tensor) -> Tensor:
    """The rows of all ranks. All ranks do the same with them: each takes its part of the gradient."""
    return GatherOp.apply(x)


def shared_rows(x: Tensor) -> Tensor:
    """The rows of all ranks. Each rank does something else with them: gradients are summed over the ranks."""
    return AllGatherOp.apply(x)


def summed_rows(x: Tensor) -> Tensor:
    """The rank's part of the rows of the sum of every rank's `x`."""
    return ReduceScatterOp.apply(x)


def sum_gradients(parameter: Tensor, group: Any) -> None:
    """Let every backward pass give a parameter that all ranks have the sum of their gradients.

    For parameters that see only the rank's part of the tokens. Fleet's own hook for that counts
    micro-batches, of which there may be any number.
    """

    def total(grad: Tensor) -> Tensor:
        grad = grad.clone()
        distributed.all_reduce(grad, group=group)
        return grad

    parameter.register_hook(total)


def own_random() -> AbstractContextManager[None]:
    """Inside, random numbers differ between the ranks; outside they are the same on all of them."""
    return get_rng_state_tracker().rng_state()
