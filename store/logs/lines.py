"""A log line and its place in the job's log."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple

from store.errors import InvalidCursor


class Position(NamedTuple):
    """A place in a job's log, behind line `seq` of an attempt. Its text form is the cursor of clients."""

    attempt: int
    seq: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.seq}"


START = Position(0, 0)
"""Before the first line."""


class LogLine(NamedTuple):
    """One line. `seq` counts the lines of an attempt from 1 without a gap; `t` is unix seconds."""

    attempt: int
    seq: int
    t: float
    rank: int
    line: str

    @property
    def position(self) -> Position:
        return Position(self.attempt, self.seq)


def parse_position(text: str) -> Position:
    """The position of a cursor "<attempt>-<seq>".

    Raises: InvalidCursor for any other text.
    """
    if not re.fullmatch(r"[0-9]{1,9}-[0-9]{1,15}", text):
        raise InvalidCursor(f"after: got {text[:80]!r}, expected <attempt>-<line number>, for example 1-42")
    attempt, _, seq = text.partition("-")
    return Position(int(attempt), int(seq))


def encode_lines(lines: Iterable[LogLine]) -> bytes:
    """JSON lines; the attempt is not in them, it is part of the key they are stored under."""
    rows = ({"seq": line.seq, "t": line.t, "rank": line.rank, "line": line.line} for line in lines)
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def decode_lines(attempt: int, data: bytes) -> list[LogLine]:
    """The lines that `encode_lines` was given."""
    rows = (json.loads(row) for row in data.splitlines())
    return [LogLine(attempt, row["seq"], row["t"], row["rank"], row["line"]) for row in rows]


def continuing(lines: Iterable[LogLine], after: Position) -> Iterator[LogLine]:
    """The lines behind `after`, each once, up to the first one that is missing.

    An attempt's first line may follow any line of an earlier attempt: nobody can tell which one was its last.
    """
    for line in lines:
        if line.position <= after:
            continue
        same_attempt = line.attempt == after.attempt
        if line.seq != (after.seq + 1 if same_attempt else 1):
            return
        after = line.position
        yield line


def continuing_attempt(lines: Iterable[LogLine], after: Position) -> Iterator[LogLine]:
    """The same, but only lines of the attempt that `after` is in.

    This is how far a live stream can be trusted: what an attempt wrote while the broker was away is in the
    archive alone, and the next attempt's lines follow in the stream as if nothing was missing.
    """
    return takewhile(lambda line: line.attempt == after.attempt, continuing(lines, after))
