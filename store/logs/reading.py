"""Reading a job's log from the live stream and the archive as if it were one."""

from collections.abc import Iterable
from dataclasses import dataclass

from redis.exceptions import RedisError

from store.logs.archive import LogArchive
from store.logs.lines import START, LogLine, Position, continuing, continuing_attempt
from store.logs.stream import LogStream

_MOST_BATCHES = 64
"""Batches of the live stream that are read at once."""
_SCAN = 20_000
"""Lines that one call looks at for those of one trainer process."""


@dataclass(frozen=True)
class LogPage:
    """Some lines, and the position that continues behind all that was looked at."""

    lines: list[LogLine]
    position: Position


class _Scan:
    """Collects what continues the log, until the page is full."""

    def __init__(self, after: Position, limit: int, rank: int | None) -> None:
        self.position = after
        self.lines: list[LogLine] = []
        self._limit, self._rank, self._left = limit, rank, max(limit, _SCAN)

    def take(self, lines: Iterable[LogLine]) -> bool:
        """Take lines that continue the log; whether there was any."""
        before = self.position
        for line in lines:
            self.position = line.position
            self._left -= 1
            if self._rank in (None, line.rank):
                self.lines.append(line)
            if self.is_full():
                break
        return self.position != before

    def is_full(self) -> bool:
        return len(self.lines) >= self._limit or self._left <= 0


def read_logs(
    stream: LogStream,
    archive: LogArchive,
    job_id: str,
    *,
    after: Position = START,
    limit: int = 1000,
    rank: int | None = None,
    complete: bool = False,
) -> LogPage:
    """The next lines behind `after`, without gap or repeat; an empty page at the end of what is known.

    A line that is on neither side yet ends the page: it is on its way.

    Args:
        rank: only lines of this trainer process.
        complete: nothing more will come (the job is over): lines that were lost with a host are passed over.
    """
    scan = _Scan(after, limit, rank)
    batches = 1  # a stream that does not go back so far is asked in vain, and may hold much
    while not scan.is_full():
        live = _live_lines(stream, job_id, scan.position, batches)
        if scan.take(continuing_attempt(live, scan.position)):
            batches = min(8 * batches, _MOST_BATCHES)
            continue
        if scan.take(continuing(archive.read(job_id, scan.position), scan.position)):
            continue
        known = _next_known(stream, archive, job_id, scan.position)
        if known is None or not (
            complete
            or _begins_an_attempt(known, scan.position)
            or _begun_since(stream, archive, job_id, scan.position.attempt)
        ):
            break
        scan.position = Position(known.attempt, known.seq - 1)
    return LogPage(scan.lines, scan.position)


def _begins_an_attempt(position: Position, after: Position) -> bool:
    return position.attempt > after.attempt and position.seq == 1


def _begun_since(stream: LogStream, archive: LogArchive, job_id: str, attempt: int) -> bool:
    """Whether a later attempt has written lines: what is missing of this one was lost with a host."""
    last = [lines[-1] for lines in (archive.tail(job_id, 1), _live_tail(stream, job_id, 1)) if lines]
    return any(line.attempt > attempt for line in last)


def tail_logs(
    stream: LogStream, archive: LogArchive, job_id: str, count: int, *, rank: int | None = None
) -> LogPage:
    """The last `count` lines, of one trainer process or of all."""
    wanted = count
    while True:
        # the archive is ahead while the broker is away, the stream until the next segment is written
        lines = {
            line.position: line for line in archive.tail(job_id, wanted) + _live_tail(stream, job_id, wanted)
        }
        ordered = [lines[position] for position in sorted(lines)]
        page = [line for line in ordered if rank in (None, line.rank)]
        if len(page) >= count or len(ordered) < wanted:
            return LogPage(page[len(page) - count :] if len(page) > count else page, _end(ordered))
        wanted *= 10


def _end(lines: list[LogLine]) -> Position:
    return lines[-1].position if lines else START


def _live_lines(stream: LogStream, job_id: str, after: Position, batches: int) -> list[LogLine]:
    try:
        return stream.read(job_id, after, batches)
    except RedisError:
        return []  # the broker is away; the archive has the same lines a little later


def _live_tail(stream: LogStream, job_id: str, count: int) -> list[LogLine]:
    try:
        return stream.tail(job_id, count)
    except RedisError:
        return []


def _next_known(stream: LogStream, archive: LogArchive, job_id: str, after: Position) -> Position | None:
    """The first line behind `after` that either side has."""
    archived = next((line.position for line in archive.read(job_id, after)), None)
    live = next(
        (line.position for line in _live_lines(stream, job_id, after, 1) if line.position > after), None
    )
    return min((position for position in (archived, live) if position is not None), default=None)
