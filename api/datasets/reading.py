"""Shows some records of a split, wherever in its file they are."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from store import tables
from store.artifacts import Artifacts
from store.datasets import split_file

LONGEST_SHOWN = 1 << 20
"""Bytes of a record that is shown; of a longer one only its place and length."""
PAGE_BYTES = 4 << 20
"""A page ends behind the record with which it has so many bytes."""


def records_page(artifacts: Artifacts, dataset: tables.Dataset, split: str, offset: int, limit: int) -> bytes:
    """A page of records as JSON: `items`, each with `line`, `bytes` and `record`; `next_offset`; `total`.

    A record goes out with the bytes that came in, which are strict JSON: it may hold numbers and texts that
    could not be written again from Python's objects.

    Args:
        offset: how many records come before the first one shown.

    Raises: FileNotFoundError, ArtifactError when the artifacts do not have the file.
    """
    total = dataset.splits[split]["examples"]
    items: list[bytes] = []
    size = 0
    if offset < total:
        for number, line in _lines_from(artifacts, dataset, split, offset):
            record = line if len(line) <= LONGEST_SHOWN else b"null"
            items.append(b'{"line":%d,"bytes":%d,"record":%s}' % (number, len(line), record))
            size += len(record)
            if len(items) == limit or size >= PAGE_BYTES:
                break
    reached = offset + len(items)
    next_offset = json.dumps(reached if reached < total else None).encode()
    return b'{"items":[%s],"next_offset":%s,"total":%d}' % (b",".join(items), next_offset, total)


def _lines_from(
    artifacts: Artifacts, dataset: tables.Dataset, split: str, offset: int
) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line) of all lines behind the first `offset` ones."""
    known, start = _nearest(dataset.splits[split]["index"], offset)
    pieces = artifacts.open(f"{dataset.key}/{split_file(split)}", start)
    for number, line in enumerate(lines_of(pieces), known + 1):
        if number > offset:
            yield number, line


def lines_of(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a stored file, without what ends them."""
    rest: list[bytes] = []
    for piece in pieces:
        *complete, last = piece.split(b"\n")
        for line in complete:
            yield b"".join([*rest, line])
            rest = []
        rest.append(last)


def _nearest(index: Mapping[str, Any], line: int) -> tuple[int, int]:
    """A line at or before `line` (both from 0) whose place is known, and that place."""
    position = line // index["stride"]
    return position * index["stride"], index["offsets"][position]
