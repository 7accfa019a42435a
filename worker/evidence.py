"""The last words of a trainer, for whoever asks why its job has failed."""

import json
from collections.abc import Iterable

from worker.workspace import AttemptFolder

LINES = 20
LINE_CHARACTERS = 500
_TAIL_BYTES = 1 << 20


def last_lines(folder: AttemptFolder) -> tuple[str, ...]:
    """The last lines of an attempt's numbered log, of all its ranks, each cut to a readable length."""
    try:
        with folder.spool.open("rb") as file:
            size = file.seek(0, 2)
            start = file.seek(max(0, size - _TAIL_BYTES))
            rows = file.read().splitlines(keepends=True)
    except OSError:
        return ()
    whole = rows[1:] if start else rows  # the first may be the end of a line that begins before
    return tuple(_cut(json.loads(row)["line"]) for row in _ended(whole))


def _ended(rows: list[bytes]) -> Iterable[bytes]:
    return [row for row in rows if row.endswith(b"\n")][-LINES:]


def _cut(line: str) -> str:
    return line if len(line) <= LINE_CHARACTERS else line[: LINE_CHARACTERS - 1] + "…"
