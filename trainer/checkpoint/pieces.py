"""What a process holds of the tensors that are to be stored: rectangles of them, in no particular order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.regions import (
    FlatPart,
    Region,
    as_slices,
    flat_parts,
    inside,
    place,
    region_shape,
    region_size,
    whole,
)
from trainer.models.safetensors_file import TensorHeader
from trainer.models.weights import Weight
from trainer.models.weights_save import PADDLE_DTYPES, tensor_header

if TYPE_CHECKING:
    from trainer.parallel.sharded_state import Held

#: What an updater calls a weight itself.
WEIGHT = "weight"


@dataclass(frozen=True)
class Piece:
    """A rectangle of a tensor on disk that is in this process.

    Attributes:
        name: of the tensor.
        header: dtype and shape of the whole tensor on disk.
        region: the rectangle, in the tensor on disk.
        transposed: whether the rectangle lies transposed in memory.
        values: gives the rectangle as it lies in memory, in the header's dtype: a Paddle tensor or an array.
            What it gives may share memory with what is trained.
    """

    name: str
    header: TensorHeader
    region: Region
    transposed: bool
    values: Callable[[], Any]


@dataclass(frozen=True)
class TensorFiles:
    """Tensors that are stored together: in one file, or in numbered ones with an index.

    Attributes:
        stem: path of the files below the directory, without number and ending, such as "optimizer".
        form: what the headers say as `format`: "pt" or "np".
        pieces: what this process holds of the tensors.
        max_bytes: from how many bytes on they are cut into several files; None: never.
    """

    stem: str
    form: str
    pieces: tuple[Piece, ...]
    max_bytes: int | None = None


@dataclass
class Contents:
    """What a directory is to hold.

    Attributes:
        tensors: of every process together; each process names its own pieces, and the same files.
        others: write the other files into the directory that they are given. They run in the main process
            only, perhaps while training goes on, so they must not look at what a step changes.
    """

    tensors: list[TensorFiles] = field(default_factory=list)
    others: list[Callable[[Path], None]] = field(default_factory=list)


def weight_pieces(weights: Iterable[Weight]) -> Iterator[Piece]:
    """The pieces of parameters that are in this process, whole or as shards."""
    for weight in weights:
        yield from _pieces(weight, weight.name, tensor_header(weight).dtype, None, weight.parameter)


def held_pieces(parts: Iterable[Held], *, full_precision: bool = False) -> Iterator[Piece]:
    """The pieces of what an updater holds, of weights or of their optimizer state.

    Args:
        parts: state is always stored in float32.
        full_precision: whether weights are, too; else as they are.
    """
    for held in parts:
        weight = held.weight
        name = weight.name if held.kind == WEIGHT else f"{weight.name}/{held.kind}"
        if held.is_power:
            header = TensorHeader("F32", (1,))
            yield Piece(name, header, whole((1,)), False, partial(_values, held.tensor, "F32"))
            continue
        dtype = "F32" if full_precision or held.kind != WEIGHT else tensor_header(weight).dtype
        yield from _pieces(weight, name, dtype, held.span, held.tensor)


def _pieces(
    weight: Weight, name: str, dtype: str, span: tuple[int, int] | None, tensor: Any
) -> Iterator[Piece]:
    """The rectangles on disk that `tensor` consists of: the parameter (or shaped like it), or a flat part."""
    header = TensorHeader(dtype, tuple(weight.disk_shape))
    shape = tuple(weight.parameter.shape)
    size = region_size(whole(shape))
    if span is None:
        parts = [FlatPart(whole(shape), 0, size)]
    else:
        parts = flat_parts(shape, span[0], min(span[1], size))
    for part in parts:
        placed = place(part.region, weight.region, transposed=weight.transposed, columns=weight.columns)
        if placed is not None:
            values = partial(_cut, tensor, dtype, span is not None, part, placed.local)
            yield Piece(name, header, placed.disk, weight.transposed, values)


def _cut(tensor: Any, dtype: str, flat: bool, part: FlatPart, local: Region) -> Any:
    """The numbers of the rectangle `local`, which lies in `part` of `tensor`."""
    found = _values(tensor, dtype)
    if flat:
        found = found[part.start : part.stop].reshape(list(region_shape(part.region)))
    if local == part.region:
        return found
    return found[as_slices(inside(local, part.region))]


def _values(tensor: Any, dtype: str) -> Any:
    found, wanted = tensor.detach(), PADDLE_DTYPES[dtype]
    return found if str(found.dtype) == f"paddle.{wanted}" else found.astype(wanted)
