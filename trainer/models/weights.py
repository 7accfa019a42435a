"""Where each parameter of a model belongs on disk.

Linear weights are `[out, in]` on disk and `[in, out]` in a Paddle Linear. A tied head is not stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor

from trainer.models.host_memory import writable
from trainer.models.placement import TensorRank
from trainer.turning import put_turned

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True)
class Shard:
    """The part of a tensor on disk that a rank of a tensor group has.

    Attributes:
        axis: the axis of the tensor on disk that is cut.
        start, stop: the indices along it that are here.
        size: the length of the axis on disk.
    """

    axis: int
    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Weight:
    """One tensor on disk and the parameter, or the part of a fused parameter, that it or a shard of it is.

    Attributes:
        name: Hugging Face name.
        parameter: the Paddle parameter.
        transposed: whether the matrix on disk is the transpose of the parameter.
        columns: which outputs (last axis) of a fused parameter this is, from and to; None: all of it.
        shard: what of the tensor is here; None: all of it. Rows of a parameter beyond those of a shard of the
            first axis only make all ranks' parameters equally large; they stay zero and are not stored.
    """

    name: str
    parameter: Tensor
    transposed: bool
    columns: tuple[int, int] | None = None
    shard: Shard | None = None

    @property
    def disk_shape(self) -> list[int]:
        """Shape of the whole tensor on disk."""
        shape = list(self.parameter.shape)
        if self.columns is not None:
            start, end = self.columns
            shape[-1] = end - start
        shape = shape[::-1] if self.transposed else shape
        if self.shard is not None:
            shape[self.shard.axis] = self.shard.size
        return shape

    @property
    def region(self) -> tuple[slice, ...]:
        """The part of the tensor on disk that is here, a range along each axis."""
        region = [slice(0, size) for size in self.disk_shape]
        if self.shard is not None:
            region[self.shard.axis] = slice(self.shard.start, self.shard.stop)
        return tuple(region)

    def turned(self, tensor: Tensor) -> Tensor:
        """The region of the tensor on disk, out of one shaped like the parameter: itself, or a moment."""
        part = tensor.detach()
        if self.columns is not None:
            start, end = self.columns
            part = part[..., start:end]
        part = part.t() if self.transposed else part
        rows = self.region[0].stop - self.region[0].start
        return part if rows == part.shape[0] else part[:rows]

    @paddle.no_grad()
    def put(self, tensor: Tensor, target: Tensor) -> None:
        """Write the region of a tensor as it is on disk to its place in one shaped like the parameter."""
        part = tensor.t() if self.transposed else tensor
        if self.columns is not None:
            start, end = self.columns
            target[..., start:end] = part
        elif part.shape[0] < target.shape[0]:
            target[: part.shape[0]] = part
        else:
            paddle.assign(part, target)

    @paddle.no_grad()
    def fill_piece(self, place: tuple[int, ...], piece: np.ndarray, *, turned: bool) -> None:
        """Set a piece of the parameter; its dtype is converted, and uint16 is bfloat16.

        Args:
            place: where the piece begins, for each axis of the parameter, counted from its `columns`.
            turned: the piece lies transposed, and not as the parameter does.
        """
        *rows, column = place
        column += self.columns[0] if self.columns else 0
        start = (*rows, column)
        shape = piece.shape[::-1] if turned else piece.shape
        where = tuple(slice(first, first + size) for first, size in zip(start, shape, strict=True))
        host = writable(self.parameter) if piece.dtype == np.float32 else None
        if host is None:
            tensor = paddle.to_tensor(np.ascontiguousarray(piece.T) if turned else piece)
            self.parameter[where] = tensor.astype(self.parameter.dtype)
        elif turned:
            put_turned(host[where], piece)
        else:
            host[where] = piece

    def fill(self, tensor: Tensor) -> None:
        """Set the parameter from the whole tensor as it is on disk; its dtype is converted."""
        part = tensor if self.shard is None else tensor[self.region]
        self.put(part.astype(self.parameter.dtype), self.parameter)


def shard_of(weight: Weight, tensor: TensorRank | None, size: int | None = None) -> Shard | None:
    """The shard that a weight is by the marks that Fleet puts on its parameter; None when it is not split.

    Args:
        weight: without a shard yet.
        tensor: the rank that has it.
        size: length on disk of the axis that is cut, where it is less than all ranks' parts together.
    """
    parameter = weight.parameter
    if tensor is None or not parameter.is_distributed:
        return None
    axis: int = parameter.split_axis  # type: ignore[attr-defined]
    axis = parameter.ndim - 1 - axis if weight.transposed else axis
    length = weight.disk_shape[axis]
    size = size or length * tensor.size
    start = tensor.rank * length
    return Shard(axis, start, min(start + length, size), size)


WeightMap = Mapping[str, Weight]
