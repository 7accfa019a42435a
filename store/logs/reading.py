"""Reading a job's log from the live stream and the archive as if it were one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from redis.exceptions import RedisError

from store.logs.archive import LogArchive
from store.logs.lines import START, LogLine, Position, continuing
from store.logs.stream import LogStream

_SCAN = 20_000
"""Lines that one call looks at when it filters by rank."""


@dataclass(frozen=True)
class LogPage:
    """Some lines, and the position that continues behind all that was looked at."""

    lines: list[LogLine]
    position: Position


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
    page: list[LogLine] = []
    scanned = 0

    def take(lines: Iterable[LogLine]) -> None:
        nonlocal after, scanned
        for line in continuing(lines, after):
            after, scanned = line.position, scanned + 1
            if rank is None or line.rank == rank:
                page.append(line)
            if len(page) == limit or scanned == max(limit, _SCAN):
                return

    def is_full() -> bool:
        return len(page) == limit or scanned >= max(limit, _SCAN)

    while not is_full():
        seen = scanned
        take(_stream_lines(stream, job_id, after))
        if scanned == seen:
            take(archive.read(job_id, after))
        if scanned == seen:
            lost_until = _next_known(stream, archive, job_id, after) if complete else None
            if lost_until is None:
                break
            after = lost_until
    return LogPage(page, after)


def tail_logs(
    stream: LogStream, archive: LogArchive, job_id: str, count: int, *, rank: int | None = None
) -> LogPage:
    """The last `count` lines, of one trainer process or of all."""
    wanted = count
    while True:
        # the archive is ahead while the broker is away, the stream until the next segment is written
        lines = {line.position: line for line in archive.tail(job_id, wanted)}
        lines |= {line.position: line for line in _or_nothing(partial(stream.tail, job_id, wanted))}
        ordered = [lines[position] for position in sorted(lines)]
        page = [line for line in ordered if rank is None or line.rank == rank][-count:]
        if len(page) == count or len(ordered) < wanted:
            return LogPage(page, ordered[-1].position if ordered else START)
        wanted *= 10


def _stream_lines(stream: LogStream, job_id: str, after: Position) -> list[LogLine]:
    return _or_nothing(partial(stream.read, job_id, after))


def _or_nothing(read: Callable[[], list[LogLine]]) -> list[LogLine]:
    try:
        return read()
    except RedisError:
        return []  # the broker is away; the archive has what it had, with some delay


def _next_known(stream: LogStream, archive: LogArchive, job_id: str, after: Position) -> Position | None:
    """Just before the first line that is known behind `after`."""
    firsts = [next(archive.read(job_id, after), None)]
    firsts += [line for line in _stream_lines(stream, job_id, after) if line.position > after][:1]
    known = [line.position for line in firsts if line is not None]
    return Position(min(known).attempt, min(known).seq - 1) if known else None
