"""What a process holds of the tensors that are to be stored: rectangles of them, in no particular order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trainer.checkpoint.regions import (
    FlatPart,
    Region,
    as_slices,
    flat_parts,
    place,
    region_shape,
    region_size,
    whole,
)
from trainer.models.safetensors_file import TensorHeader
from trainer.models.weights import Weight
from trainer.models.weights_save import tensor_header


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


class Held(NamedTuple):
    """Numbers that belong to a weight: its own, or a moment of it.

    Attributes:
        weight: a weight of which this process has a part.
        kind: what goes behind the weight's name on disk, such as "moment1"; empty: the weight itself.
        span: which numbers of the flattened local parameter these are; None: all of them.
        values: gives them, shaped like the parameter, or flat where there is a span.
        dtype: safetensors name; None: the parameter's.
    """

    weight: Weight
    kind: str
    span: tuple[int, int] | None
    values: Callable[[], Any]
    dtype: str | None = None

    @property
    def name(self) -> str:
        """The tensor on disk."""
        return f"{self.weight.name}/{self.kind}" if self.kind else self.weight.name


def weight_pieces(weights: Iterable[Weight], dtype: str | None = None) -> Iterator[Piece]:
    """The pieces of parameters that are wholly or as a shard in this process.

    Args:
        weights: of the model, or of an adapter.
        dtype: safetensors name, to store them in; None: as they are.
    """
    for weight in weights:
        parameter = weight.parameter
        values = parameter.detach if dtype is None else _converted(parameter, dtype)
        yield from held_pieces(Held(weight, "", None, values, dtype))


def held_pieces(held: Held) -> Iterator[Piece]:
    """The rectangles of the tensor on disk that `held` consists of."""
    weight = held.weight
    stored = tensor_header(weight)
    header = TensorHeader(held.dtype or stored.dtype, stored.shape)
    shape = tuple(weight.parameter.shape)
    size = region_size(whole(shape))
    region = getattr(weight, "region", as_slices(whole(stored.shape)))
    if held.span is None:
        parts = [FlatPart(whole(shape), 0, size)]
    else:
        parts = flat_parts(shape, held.span[0], min(held.span[1], size))
    for part in parts:
        placed = place(part.region, region, transposed=weight.transposed, columns=weight.columns)
        if placed is not None:
            values = _cut(held, part, placed.local)
            yield Piece(held.name, header, placed.disk, weight.transposed, values)


def _cut(held: Held, part: FlatPart, local: Region) -> Callable[[], Any]:
    """Gives the numbers of the rectangle `local`, which lies in `part`."""
    inside = tuple(
        slice(start - first, stop - first)
        for (start, stop), (first, _) in zip(local, part.region, strict=True)
    )
    shape = region_shape(part.region)

    def values() -> Any:
        found = held.values()
        if held.span is not None:
            found = found[part.start : part.stop].reshape(list(shape))
        return found if local == part.region else found[inside]

    return values


def _converted(tensor: Any, dtype: str) -> Callable[[], Any]:
    names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    return lambda: tensor.detach().astype(names[dtype])
