"""Ships the log of one host of several: its lines get their numbers in the job's log from the database."""

import logging
import time
from collections.abc import Sequence

from redis.exceptions import RedisError

from store.gangs import Block, last_block, number_lines
from store.logs import LogLine
from worker.masking import NOTHING, Mask
from worker.services import Services
from worker.shipping import SEGMENT_BYTES
from worker.spec import Spec
from worker.spool import Spool, SpoolReader
from worker.workspace import AttemptFolder

FLUSH_S = 1.0
"""Lines wait so long for others at most: the live stream takes them in the order of their numbers only."""
STREAM_PATIENCE_S = 30.0
"""So long the live stream is asked to take lines that others are to precede; the archive has them anyway."""

log = logging.getLogger(__name__)


class GangShipper:
    """Numbers new lines, writes them to the archive and, when it is their turn, to the live stream.

    The database remembers which lines were numbered last. They are archived again after a crash, under the
    same numbers.

    Args:
        spec: of the attempt in whose name is delivered.
        folder: of the attempt that wrote the lines, whose `rank` of the hosts this one was.
    """

    def __init__(
        self, services: Services, spec: Spec, folder: AttemptFolder, rank: int, mask: Mask = NOTHING
    ) -> None:
        self._services = services
        self._job_id = spec.job_id
        self._attempt = folder.number
        self._rank = rank
        self._spool = Spool(folder, mask)
        self._reader = SpoolReader(folder)
        self._flush_s = min(services.settings.log_flush_s, FLUSH_S)
        self._flushed_at = time.monotonic()
        self._resumed = False
        self._streamed: list[tuple[float, Sequence[LogLine]]] = []

    def step(self, final: bool) -> bool:
        """Number, archive and stream some lines; True when there may be more.

        Raises: OSError while the archive or the disk cannot be written; whatever the database raises.
        """
        more = self._spool.collect(final=final)
        ending = final and not more
        self._stream()
        if not ending and time.monotonic() - self._flushed_at < self._flush_s:
            return more
        if not self._resumed:
            self._resume()
            self._resumed = True
        lines, offset = self._reader.read(SEGMENT_BYTES)
        if lines:
            self._ship(self._numbered(lines[0].seq, len(lines)), lines)
            self._reader.advance(offset)
            return True
        self._flushed_at = time.monotonic()
        if ending:
            if self._rank == 0:
                self._services.archive.compact(self._job_id, self._attempt)
            self._spool.close()
        return more

    def _resume(self) -> None:
        """Archive again what was numbered last: it may not have been before."""
        with self._services.database.reading() as session:
            block = last_block(session, self._job_id, self._attempt, self._rank)
        if block is None:
            return
        self._reader.seek(block.first - 1)
        lines: list[LogLine] = []
        while len(lines) < block.count:
            found, offset = self._reader.read(SEGMENT_BYTES)
            if not found:
                break
            lines += found
            self._reader.advance(offset)
        if lines:
            self._ship(block, lines[: block.count])
        self._reader.seek(block.first + block.count - 1)

    def _numbered(self, first: int, count: int) -> Block:
        with self._services.database.transaction() as session:
            return number_lines(session, self._job_id, self._attempt, self._rank, first, count)

    def _ship(self, block: Block, lines: Sequence[LogLine]) -> None:
        numbered = [line._replace(seq=block.number + n) for n, line in enumerate(lines)]
        self._services.archive.append(self._job_id, numbered)
        self._streamed.append((time.monotonic(), numbered))
        self._stream()

    def _stream(self) -> None:
        """Give the live stream what it has not taken yet, in order, unless it is too late for that."""
        while self._streamed:
            since, lines = self._streamed[0]
            try:
                end = self._services.stream.append(self._job_id, lines)
            except (RedisError, OSError):
                return
            early = end.attempt == self._attempt and end.seq < lines[0].seq
            if early and time.monotonic() < since + STREAM_PATIENCE_S:
                return
            self._streamed.pop(0)
