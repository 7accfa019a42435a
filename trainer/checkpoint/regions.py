"""Rectangles of tensors: which part of a tensor on disk a process holds, and where its numbers lie in a file.

A region has one half-open range of indices for every axis. Everything here is arithmetic; nothing is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: `(start, stop)` for every axis.
Region = tuple[tuple[int, int], ...]


class Run(NamedTuple):
    """Numbers that follow each other both in a file and in a rectangle of it.

    Attributes:
        first: index of the first one in the flattened tensor.
        start, stop: where they are in the flattened rectangle.
    """

    first: int
    start: int
    stop: int


class FlatPart(NamedTuple):
    """A rectangle of a parameter that is a part of a flat range of it.

    Attributes:
        region: the rectangle.
        start, stop: its numbers, counted from the beginning of the flat range, row by row.
    """

    region: Region
    start: int
    stop: int


def whole(shape: Sequence[int]) -> Region:
    """The region that is all of a tensor."""
    return tuple((0, size) for size in shape)


def region_shape(region: Region) -> tuple[int, ...]:
    """Lengths along the axes."""
    return tuple(stop - start for start, stop in region)


def region_size(region: Region) -> int:
    """Numbers in a region."""
    return math.prod(region_shape(region))


def as_slices(region: Region) -> tuple[slice, ...]:
    """The index that cuts a region out of an array."""
    return tuple(slice(start, stop) for start, stop in region)


def inside(region: Region, outer: Region) -> Region:
    """A region that lies in `outer`, counted from where that begins."""
    return tuple(
        (start - first, stop - first) for (start, stop), (first, _) in zip(region, outer, strict=True)
    )


def flat_parts(shape: Sequence[int], start: int, stop: int) -> list[FlatPart]:
    """The range `[start, stop)` of a flattened vector or matrix as rectangles: at most three.

    These are the end of a row, whole rows, and the beginning of a row.
    """
    if not start < stop:
        return []
    if len(shape) == 1:
        return [FlatPart(((start, stop),), 0, stop - start)]
    if len(shape) != 2:
        raise ValueError(f"got shape {list(shape)}, expected a vector or a matrix")
    width = shape[1]
    (first, left), (last, right) = divmod(start, width), divmod(stop, width)
    if first == last:
        rows = [((first, first + 1), (left, right))]
    else:
        upper = first + 1 if left else first
        rows = [
            ((first, upper), (left, width)),
            ((upper, last), (0, width)),
            ((last, last + 1), (0, right)),
        ]
    parts, done = [], 0
    for region in rows:
        if size := region_size(region):
            parts.append(FlatPart(region, done, done + size))
            done += size
    return parts


class Placed(NamedTuple):
    """A rectangle of a parameter that is stored.

    Attributes:
        local: the rectangle, in the parameter.
        disk: the same numbers in the tensor on disk; turned, when the weight is stored transposed.
    """

    local: Region
    disk: Region


def place(
    local: Region, held: Sequence[slice], *, transposed: bool, columns: tuple[int, int] | None
) -> Placed | None:
    """Where the numbers of a parameter's rectangle belong on disk; None when none of them does.

    What `local` has beyond the weight is cut off: other columns of a fused parameter, and rows that only pad
    the vocabulary.

    Args:
        local: the rectangle, in the parameter.
        held, transposed, columns: `region`, `transposed` and `columns` of the parameter's weight (see
            `trainer.models.weights.Weight`).
    """
    columns = columns or (0, local[-1][1])
    crop = (*local[:-1], _common(local[-1], columns))
    offsets = [0] * len(crop)
    offsets[-1] = columns[0]
    bounds = [(part.start, part.stop) for part in held]
    if transposed:
        bounds.reverse()
    kept, disk = [], []
    for part, offset, (first, end) in zip(crop, offsets, bounds, strict=True):
        start, stop = _common(part, (offset, offset + end - first))
        if start >= stop:
            return None
        kept.append((start, stop))
        disk.append((start - offset + first, stop - offset + first))
    if transposed:
        disk.reverse()
    return Placed(tuple(kept), tuple(disk))


def runs(shape: Sequence[int], region: Region) -> Iterator[Run]:
    """The stretches of a flattened tensor that a rectangle is made of, as long as they can be, in order."""
    lengths = region_shape(region)
    if math.prod(lengths) == 0:
        return
    # Axes from `cut` on are whole, except perhaps axis `cut` itself: there a run is contiguous.
    cut = len(shape)
    while cut > 0:
        cut -= 1
        if lengths[cut] != shape[cut]:
            break
    length = math.prod(lengths[cut:])
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    base = sum(start * stride for (start, _), stride in zip(region, strides, strict=True))
    outer = lengths[:cut]
    for number in range(math.prod(outer)):
        first, rest = base, number
        for axis in reversed(range(cut)):
            rest, index = divmod(rest, outer[axis])
            first += index * strides[axis]
        yield Run(first, number * length, (number + 1) * length)


def overlap(one: Region, other: Region) -> Region | None:
    """The rectangle that two have in common, or None."""
    common = tuple(_common(a, b) for a, b in zip(one, other, strict=True))
    return common if all(start < stop for start, stop in common) else None


def _common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])
