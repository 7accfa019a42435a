"""Turns what a process wrote to its output into lines that can be numbered, sent and shown."""

import codecs
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from worker.masking import NOTHING, Mask

CHUNK_BYTES = 1 << 20
LINE_BYTES = 16 << 10
REDRAW_S = 2.0


@dataclass(frozen=True)
class RawLine:
    """A line as text, and the byte offset in the raw file at which the next one starts."""

    text: str
    end: int


class RawLog:
    """The raw output file of one rank, read line by line from a byte offset.

    Invalid UTF-8 is replaced, a line longer than 16 KiB is cut with a note, and of a progress bar that draws
    itself with carriage returns only what a terminal would show remains: its state at the end of the line, or
    every two seconds while it has no end. The offset of a line says all that is needed to go on after it.
    """

    def __init__(
        self,
        path: Path,
        offset: int = 0,
        clock: Callable[[], float] = time.monotonic,
        mask: Mask = NOTHING,
    ) -> None:
        self.offset = offset
        self._path = path
        self._clock = clock
        self._mask = mask
        self._redrawn_since: float | None = None

    def read(self, *, final: bool = False) -> list[RawLine]:
        """The lines that are whole by now, from at most 1 MiB; `final`: nothing more will be written.

        Call again until nothing comes, the file may hold more.
        """
        data = self._pending()
        if not data:
            return []
        lines, start = [], 0
        while (newline := data.find(b"\n", start)) >= 0:
            lines.append(RawLine(self._shown(data[start:newline]), self.offset + newline + 1))
            start = newline + 1
        more = len(data) == CHUNK_BYTES
        if (more and start == 0) or (final and not more and start < len(data)):
            lines.append(RawLine(self._shown(data[start:]), self.offset + len(data)))
        elif redrawn := self._redrawn(data[start:]):
            lines.append(RawLine(self._shown(data[start : start + redrawn]), self.offset + start + redrawn))
        if lines:
            self.offset = lines[-1].end
        return lines

    def _pending(self) -> bytes:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, CHUNK_BYTES, self.offset)
        finally:
            os.close(descriptor)

    def _shown(self, raw: bytes) -> str:
        """The text that a terminal would be left with, masked before it is cut: no half secret may stay."""
        drawn = raw.rstrip(b"\r").rpartition(b"\r")[2]
        masked = self._mask.text(drawn.decode("utf-8", "surrogateescape"))
        drawn = masked.encode("utf-8", "surrogateescape")
        if len(drawn) <= LINE_BYTES:
            return drawn.decode("utf-8", "replace")
        kept = codecs.getincrementaldecoder("utf-8")("replace").decode(drawn[:LINE_BYTES])
        return f"{kept} … [line cut here, {len(drawn) - LINE_BYTES} bytes more]"

    def _redrawn(self, rest: bytes) -> int:
        """How many bytes of a line without an end have stood long enough to be shown as a line."""
        drawn = rest.rfind(b"\r") + 1
        if drawn <= 1:
            self._redrawn_since = None
            return 0
        now = self._clock()
        if self._redrawn_since is None:
            self._redrawn_since = now
        if now - self._redrawn_since < REDRAW_S:
            return 0
        self._redrawn_since = now
        return drawn
