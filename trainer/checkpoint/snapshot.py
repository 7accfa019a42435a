"""A copy in host memory of what is to be written, so that training can go on while it is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from trainer.checkpoint.pieces import Piece
from trainer.checkpoint.plan import Place
from trainer.checkpoint.regions import Region


class Copied(NamedTuple):
    """A rectangle that is ready to be written.

    Attributes:
        place: where its tensor lies.
        piece: what it is of.
        values: its numbers as they lie in memory; a view in disk orientation is `disk_values`.
    """

    place: Place
    piece: Piece
    values: Any

    def disk_values(self) -> np.ndarray:
        """The rectangle as it is on disk, in the bytes of its dtype; perhaps not contiguous."""
        array = host_array(self.values)
        return array.T if self.piece.transposed else array


class Snapshot:
    """Host memory for one copy; it is used again by the next one, whose pieces have the same shapes.

    A first copy waits for the system to find the memory, a later one only for the copying. What is on a GPU
    goes to page-locked memory, to which it is copied at full speed; Paddle keeps that for the next copy.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, str, Region], Any] = {}

    def take(self, pieces: Iterable[tuple[Place, Piece]]) -> list[Copied]:
        """Copy the pieces. The copies of the last call are overwritten."""
        copied = []
        for place, piece in pieces:
            values = piece.values()
            key = place.path, piece.name, piece.region
            before = self._buffers.pop(key, None)
            if isinstance(values, np.ndarray) or values.place.is_cpu_place():
                self._buffers[key] = _copy(before, host_array(values))
            else:
                before = None  # given back before memory of the same size is asked for
                self._buffers[key] = values.pin_memory()
            copied.append(Copied(place, piece, self._buffers[key]))
        return copied


def uncopied(pieces: Iterable[tuple[Place, Piece]]) -> Iterable[Copied]:
    """The pieces themselves, one at a time, for a save during which nothing is trained."""
    for place, piece in pieces:
        yield Copied(place, piece, piece.values())


def host_array(values: Any) -> np.ndarray:
    """An array that shares memory with `values` where they are on the host; bfloat16 comes as its bits."""
    if isinstance(values, np.ndarray):
        return values
    tensor = values.detach()
    if not tensor.place.is_cpu_place():
        return tensor.numpy()  # bfloat16 comes as uint16
    if str(tensor.dtype) == "paddle.bfloat16":
        tensor = tensor.view("int16")
    return np.from_dlpack(tensor)


def _copy(buffer: Any, values: np.ndarray) -> np.ndarray:
    if not isinstance(buffer, np.ndarray) or buffer.shape != values.shape or buffer.dtype != values.dtype:
        return values.copy()
    np.copyto(buffer, values)
    return buffer
