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
    def fill_piece(self, start: int, piece: Tensor, along_outputs: bool) -> None:
        """Set a piece of the parameter; the piece lies as the parameter does, and its dtype is converted.

        Args:
            start: where the piece begins, along the outputs (the last axis) or else along the first axis.
        """
        first, last = self.columns or (0, self.parameter.shape[-1])
        piece = piece.astype(self.parameter.dtype)
        if along_outputs:
            self.parameter[..., first + start : first + start + piece.shape[-1]] = piece
        else:
            self.parameter[start : start + piece.shape[0], first:last] = piece

    def fill(self, tensor: Tensor) -> None:
        """Set the parameter from a tensor as it is on disk; its dtype is converted."""
        self.put(tensor.astype(self.parameter.dtype), self.parameter)


WeightMap = Mapping[str, Weight]
