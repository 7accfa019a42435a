"""The numbered lines of an attempt in a file: the durable order of its log, from which all is shipped.

One JSON object per line: `seq` (1, 2, …), `t` (unix seconds when the line was read), `rank`, `line`, and
`end`, the offset in the rank's raw log at which the next line starts. So it alone says what is numbered.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from store.logs import LogLine
from worker.masking import NOTHING, Mask
from worker.rawlog import RawLine, RawLog
from worker.workspace import AttemptFolder

READ_BYTES = 64 << 10


class Spool:
    """Numbers the lines of the raw logs of an attempt, each exactly once. One process at a time may write."""

    def __init__(self, folder: AttemptFolder, mask: Mask = NOTHING) -> None:
        """Open the spool of an attempt and go on where the last writer was interrupted."""
        self._folder = folder
        self._mask = mask
        self._descriptor = os.open(folder.spool, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._seq, self._ends, self._size = _scan(folder.spool)
        os.ftruncate(self._descriptor, self._size)
        self._raw: dict[int, RawLog] = {}

    def collect(self, *, final: bool = False) -> bool:
        """Take over what the raw logs have got meanwhile; True when they may hold more.

        Raises: OSError when the spool cannot be written; nothing is lost, call again.
        """
        more = False
        for rank in self._folder.ranks():
            if rank not in self._raw:
                self._raw[rank] = RawLog(self._folder.raw_log(rank), self._ends.get(rank, 0), mask=self._mask)
            raw = self._raw[rank]
            start = raw.offset
            if lines := raw.read(final=final):
                more = True
                try:
                    self._append(rank, lines)
                except OSError:
                    raw.offset = start
                    raise
        return more

    def _append(self, rank: int, lines: Sequence[RawLine]) -> None:
        now = time.time()
        rows = [
            json.dumps({"seq": self._seq + n, "t": now, "rank": rank, "line": line.text, "end": line.end})
            for n, line in enumerate(lines, start=1)
        ]
        data = ("\n".join(rows) + "\n").encode()
        try:
            written = os.write(self._descriptor, data)
            if written < len(data):
                raise OSError(f"{self._folder.spool}: only {written} of {len(data)} bytes could be written")
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)
        self._seq += len(lines)

    def close(self) -> None:
        os.close(self._descriptor)


class SpoolReader:
    """Reads the lines of a spool in order, also while it grows."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._path = folder.spool
        self._attempt = folder.number
        self.offset = 0

    def read(self, limit: int = READ_BYTES) -> tuple[list[LogLine], int]:
        """The next lines, about `limit` bytes of them, and what to give `advance` once they are delivered."""
        with self._path.open("rb") as file:
            file.seek(self.offset)
            lines = file.readlines(limit)
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # it is being written
        return [self._line(json.loads(line)) for line in lines], self.offset + sum(map(len, lines))

    def advance(self, offset: int) -> None:
        """Do not read what lies before the offset again."""
        self.offset = offset

    def seek(self, seq: int) -> None:
        """Go on behind line `seq`."""
        self.offset = 0
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n") or json.loads(line)["seq"] > seq:
                    break
                self.offset += len(line)

    def _line(self, row: Mapping) -> LogLine:
        return LogLine(self._attempt, row["seq"], row["t"], row["rank"], row["line"])


def _scan(path: Path) -> tuple[int, dict[int, int], int]:
    """The last line's number, the offset in each rank's raw log, and the size of the whole lines."""
    seq, size = 0, 0
    ends: dict[int, int] = {}
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            row = json.loads(line)
            seq, ends[row["rank"]] = row["seq"], row["end"]
            size += len(line)
    return seq, ends, size
