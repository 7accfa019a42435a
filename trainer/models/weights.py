"""Where each parameter of a model belongs on disk.

Linear weights are `[out, in]` on disk and `[in, out]` in a Paddle Linear. A tied head is not stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import paddle
from paddle import Tensor

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True)
class Weight:
    """One tensor on disk and the parameter, or the part of a fused parameter, that it is.

    Attributes:
        name: Hugging Face name.
        parameter: the Paddle parameter.
        transposed: whether the matrix on disk is the transpose of the parameter.
        columns: which outputs (last axis) of a fused parameter this is, from and to; None: all of it.
    """

    name: str
    parameter: Tensor
    transposed: bool
    columns: tuple[int, int] | None = None

    @property
    def disk_shape(self) -> list[int]:
        """Shape of the tensor on disk."""
        shape = list(self.parameter.shape)
        if self.columns is not None:
            start, end = self.columns
            shape[-1] = end - start
        return shape[::-1] if self.transposed else shape

    def turned(self, tensor: Tensor) -> Tensor:
        """The tensor on disk, out of one shaped like the parameter: the parameter itself, or a moment."""
        part = tensor.detach()
        if self.columns is not None:
            start, end = self.columns
            part = part[..., start:end]
        return part.t() if self.transposed else part

    @paddle.no_grad()
    def put(self, tensor: Tensor, target: Tensor) -> None:
        """Write a tensor as it is on disk to its place in one shaped like the parameter."""
        part = tensor.t() if self.transposed else tensor
        if self.columns is None:
            paddle.assign(part, target)
        else:
            start, end = self.columns
            target[..., start:end] = part

    @paddle.no_grad()
    def fill_rows(self, start: int, rows: Tensor, turn: bool) -> None:
        """Set a piece of the parameter from some rows of a stored tensor, the first of which is `start`.

        `turn` says that the stored tensor is the transpose of the parameter.
        """
        first, last = self.columns or (0, self.parameter.shape[-1])
        end = start + rows.shape[0]
        rows = rows.astype(self.parameter.dtype)
        if turn:
            self.parameter[:, first + start : first + end] = rows.t()
        elif rows.ndim == 1:
            self.parameter[first + start : first + end] = rows
        else:
            self.parameter[start:end, first:last] = rows

    def fill(self, tensor: Tensor) -> None:
        """Set the parameter from a tensor as it is on disk; its dtype is converted."""
        self.put(tensor.astype(self.parameter.dtype), self.parameter)


WeightMap = Mapping[str, Weight]
