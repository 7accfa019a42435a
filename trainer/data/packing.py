"""Zero padding: several examples in one row, so that little of a batch is padding.

The examples of a row stay strangers: attention and positions begin anew with each (`Collator` numbers them),
so packing changes speed and nothing else. Examples keep their order in a row, and none is cut or dropped:
an example is never longer than a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from trainer.data.sft import Example

#: Examples that greedy packing looks at together.
GREEDY_BUFFER = 500


class Packable(Protocol):
    """An example of any task, as far as packing looks at it."""

    @property
    def length(self) -> int:
        """Positions that it takes in a row."""
        ...

    @property
    def label_tokens(self) -> int:
        """Positions that are learned."""
        ...


Part = TypeVar("Part", bound=Packable)


@dataclass(frozen=True)
class Pack(Generic[Part]):
    """Examples that share a row; has the same attributes as an `Example`, for all of them together."""

    parts: tuple[Part, ...]

    @property
    def length(self) -> int:
        return sum(part.length for part in self.parts)

    @property
    def label_tokens(self) -> int:
        return sum(part.label_tokens for part in self.parts)


#: One row of a batch.
Row = Example | Pack[Example]


def pack(examples: Iterable[Part], max_length: int, *, greedy: bool) -> Iterator[Pack[Part]]:
    """Rows of at most `max_length` tokens.

    Plain: examples go into the open row until one does not fit; that one opens the next row. Greedy: of each
    `GREEDY_BUFFER` examples, every one goes into the open row with the most room, or opens another where it
    does not fit.
    """
    return _pack_greedily(examples, max_length) if greedy else _pack_in_order(examples, max_length)


def padding_share(rows: Iterable[Packable], length: int | None) -> float:
    """The share of padding when each row is padded to `length` (None: to the longest)."""
    lengths = [row.length for row in rows]
    return 1.0 - sum(lengths) / (len(lengths) * (length or max(lengths)))


def _pack_in_order(examples: Iterable[Part], max_length: int) -> Iterator[Pack[Part]]:
    row: list[Part] = []
    room = max_length
    for example in examples:
        if row and example.length > room:
            yield Pack(tuple(row))
            row, room = [], max_length
        row.append(example)
        room -= example.length
    if row:
        yield Pack(tuple(row))


def _pack_greedily(examples: Iterable[Part], max_length: int) -> Iterator[Pack[Part]]:
    buffer: list[Part] = []
    for example in examples:
        buffer.append(example)
        if len(buffer) == GREEDY_BUFFER:
            yield from _roomiest_first(buffer, max_length)
            buffer = []
    yield from _roomiest_first(buffer, max_length)


def _roomiest_first(examples: list[Part], max_length: int) -> Iterator[Pack[Part]]:
    rows: list[list[Part]] = []
    room: list[int] = []
    for example in examples:
        place = room.index(max(room)) if room else 0
        if not room or room[place] < example.length:
            place = len(rows)
            rows.append([])
            room.append(max_length)
        rows[place].append(example)
        room[place] -= example.length
    for row in rows:
        yield Pack(tuple(row))
