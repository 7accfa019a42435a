"""Linear layers, whole or split over the ranks of a tensor group (Shoeybi et al., arXiv 1909.08053).

A column layer computes some of the outputs, a row layer takes some of the inputs and sums over the ranks, so
what lies between the two stays on its rank. The split ones are Fleet's. Under sequence parallelism
(Korthikanti et al., arXiv 2205.05198) a column layer takes the rank's part of the tokens and gathers them,
and a row layer gives the rank's part of them.

Everything else is alike: packed tokens `[tokens, inputs]`, weights `[inputs, outputs]`, parameters that begin
as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import paddle
from paddle import Tensor, nn
from paddle.distributed.fleet.layers.mpu.mp_layers import ColumnParallelLinear, RowParallelLinear
from paddle.distributed.fleet.utils.sequence_parallel_utils import (
    ColumnSequenceParallelLinear,
    RowSequenceParallelLinear,
)

from trainer.models.placement import TensorRank
from trainer.models.sequence import sees_own_tokens
from trainer.ops.bias import add_bias

ZERO = nn.initializer.Constant(0.0)


class Linear(nn.Linear):
    """A whole layer."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__(inputs, outputs, weight_attr=_zero(), bias_attr=_zero() if bias else False)

    def forward(self, x: Tensor) -> Tensor:
        out = paddle.matmul(x, self.weight)
        return out if self.bias is None else add_bias(out, self.bias)


#: Any of them: each has a `weight` and a `bias`, which may be None.
AnyLinear = (
    nn.Linear
    | ColumnParallelLinear
    | RowParallelLinear
    | ColumnSequenceParallelLinear
    | RowSequenceParallelLinear
)


class Cut(Enum):
    """What of a linear layer a rank has."""

    NONE = "all of it"
    COLUMNS = "some of its outputs"
    ROWS = "some of its inputs"


def cut_of(layer: nn.Layer) -> Cut:
    """How a linear layer is split."""
    if isinstance(layer, ColumnParallelLinear | ColumnSequenceParallelLinear):
        return Cut.COLUMNS
    return Cut.ROWS if isinstance(layer, RowParallelLinear | RowSequenceParallelLinear) else Cut.NONE


class Fused:
    """Several column layers with the same input as one matrix; files store them apart.

    Attributes:
        parts: name of each of them, a sibling of this layer in the files, and how many of its outputs are
            here.
    """

    parts: dict[str, int]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The outputs of each part."""
        out: Tensor = super().forward(x)  # type: ignore[misc]
        return tuple(paddle.split(out, list(self.parts.values()), axis=1))


class FusedLinear(Fused, Linear):
    """Whole."""


class _FusedColumns(Fused, ColumnParallelLinear):
    pass


class _FusedSequenceColumns(Fused, ColumnSequenceParallelLinear):
    pass


def whole(inputs: int, outputs: int, tensor: TensorRank | None, bias: bool = False) -> Linear:
    """A layer that every rank has; its outputs are the same on all of them, or those of the rank's tokens."""
    layer = Linear(inputs, outputs, bias)
    sees_own_tokens(layer.parameters(), tensor)
    return layer


def column(inputs: int, outputs: int, tensor: TensorRank | None, bias: bool = False) -> AnyLinear:
    """A layer with some of the outputs; all of them without a group."""
    if tensor is None:
        return Linear(inputs, outputs, bias)
    kind = ColumnSequenceParallelLinear if tensor.sequence else ColumnParallelLinear
    return kind(inputs, outputs, **_column_options(tensor, bias))


def fused(
    inputs: int, parts: Mapping[str, int], tensor: TensorRank | None, bias: bool = False
) -> FusedLinear | ColumnParallelLinear | ColumnSequenceParallelLinear:
    """Column layers of these names and numbers of outputs as one `Fused` layer."""
    outputs = sum(parts.values())
    if tensor is None:
        layer, size = FusedLinear(inputs, outputs, bias), 1
    else:
        kind = _FusedSequenceColumns if tensor.sequence else _FusedColumns
        layer, size = kind(inputs, outputs, **_column_options(tensor, bias)), tensor.size
    layer.parts = {name: count // size for name, count in parts.items()}
    return layer


def row(inputs: int, outputs: int, tensor: TensorRank | None, bias: bool = False) -> AnyLinear:
    """A layer that takes some of the inputs, those that column layers give; all of them without a group.

    Its bias is whole and added once.
    """
    if tensor is None:
        return Linear(inputs, outputs, bias)
    kind = RowSequenceParallelLinear if tensor.sequence else RowParallelLinear
    layer = kind(
        inputs, outputs, weight_attr=_zero(), has_bias=bias, input_is_parallel=True, mp_group=tensor.group
    )
    sees_own_tokens([] if layer.bias is None else [layer.bias], tensor)
    return layer


def _column_options(tensor: TensorRank, bias: bool) -> dict[str, Any]:
    return {"weight_attr": _zero(), "has_bias": bias, "gather_output": False, "mp_group": tensor.group}


def _zero() -> paddle.ParamAttr:
    return paddle.ParamAttr(initializer=ZERO)
