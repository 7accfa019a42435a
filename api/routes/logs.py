"""What the ranks of a job's trainer wrote."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import StreamingResponse

from api.access import require_job
from api.feeds import follow as follow_feed
from api.histories import Follow, LastEventId, bad_last_event_id, end_of, stream_answers
from api.logfeed import LogSource
from api.negotiation import EVENTS, JSON, TEXT, negotiate
from api.pagination import Cursor, HistoryLimit, one_of, valid_cursor
from api.schemas.histories import LogLine, LogPage
from api.schemas.problems import answers
from api.service import Service, ServiceDep
from api.sse import EventStreamResponse
from store import logs
from store.errors import InvalidCursor
from store.logs import START, Position, parse_position, tail_logs

router = APIRouter(tags=["histories"])

After = Annotated[
    str | None, Query(max_length=40, description="Only lines behind this cursor; wins over `tail`")
]
Rank = Annotated[int | None, Query(ge=0, le=100_000, description="Only lines of this trainer process")]
Tail = Annotated[int | None, Query(ge=1, le=10_000, description="Begin so many lines before the end")]


def _given_position(
    after: After = None, cursor: Cursor = None, last_event_id: LastEventId = None
) -> Position | None:
    """The position that the client names, or None when it names none."""
    if last_event_id:
        try:
            return parse_position(last_event_id)
        except InvalidCursor as error:
            raise bad_last_event_id(last_event_id) from error
    given = one_of(after, cursor)
    with valid_cursor("after"):
        return None if given is None else parse_position(given)


@router.get("/jobs/{job_id}/logs", response_model=LogPage, responses=stream_answers(TEXT) | answers(404, 406))
def job_logs(
    request: Request,
    service: ServiceDep,
    job_id: str,
    given: Annotated[Position | None, Depends(_given_position)],
    tail: Tail = None,
    rank: Rank = None,
    limit: HistoryLimit | None = None,
    follow: Follow = None,
) -> LogPage | Response:
    """The job's log, oldest line first: a page (JSON), as plain text, or live as server-sent events."""
    media_type = negotiate(request, (JSON, TEXT, EVENTS), follow=follow)
    with service.database.reading() as session:
        require_job(session, job_id)
        complete = end_of(session, job_id) is not None
    log = _Log(service, job_id, rank, complete)
    start = given if given is not None else log.tail_start(tail)
    if media_type == EVENTS:
        source = partial(LogSource, service, job_id, rank)
        return EventStreamResponse(follow_feed(service.hub, ("logs", job_id, rank), source, start))
    if media_type == TEXT:
        return StreamingResponse(log.text(start, limit), media_type="text/plain; charset=utf-8")
    return log.page(start, limit or 200)


class _Log:
    """One job's log as it is now."""

    PIECE = 2000

    def __init__(self, service: Service, job_id: str, rank: int | None, complete: bool) -> None:
        self._sides = (service.log_stream, service.log_archive, job_id)
        self._rank = rank
        self._complete = complete

    def tail_start(self, tail: int | None) -> Position:
        """Where the last `tail` lines begin; the start of the log without `tail`."""
        if tail is None:
            return START
        lines = tail_logs(*self._sides, tail, rank=self._rank).lines
        return Position(lines[0].attempt, lines[0].seq - 1) if lines else START

    def page(self, after: Position, limit: int) -> LogPage:
        page = self._read(after, limit)
        more = page.position != after and self._read(page.position, 1, any_rank=True).lines
        return LogPage(
            items=[LogLine.of(line) for line in page.lines], next_cursor=str(page.position) if more else None
        )

    def text(self, after: Position, limit: int | None) -> Iterator[str]:
        """The lines from `after` to the present end, at most `limit`, in pieces."""
        left = limit
        while left is None or left > 0:
            page = self._read(after, self.PIECE if left is None else min(self.PIECE, left))
            if page.position == after:
                return
            yield "".join(f"{line.line}\n" for line in page.lines)
            after = page.position
            left = None if left is None else left - len(page.lines)

    def _read(self, after: Position, limit: int, *, any_rank: bool = False) -> logs.LogPage:
        rank = None if any_rank else self._rank
        return logs.read_logs(*self._sides, after=after, limit=limit, rank=rank, complete=self._complete)
