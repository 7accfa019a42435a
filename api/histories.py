"""Where reading a job's history begins and how it is answered, as one page or as an event stream."""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Header, Query, Request
from pydantic import BaseModel
from sqlalchemy.orm import Session

from api.access import require_job
from api.feeds import Chunk, Feed
from api.feeds import follow as follow_feed
from api.hints import happens
from api.negotiation import EVENTS, JSON, negotiate
from api.pagination import MAX_ID, Page, one_of
from api.problems import ApiError, invalid
from api.service import Service
from api.sse import EventStreamResponse, encode
from store.jobs import get_job
from store.states import TERMINAL
from trainer.config.problems import Problem

_ROW_ID = re.compile(r"[0-9]{1,19}")

STREAM_ROWS = 500
"""Rows of one read of a stream."""

Follow = Annotated[
    bool | None,
    Query(description="true: an event stream, whatever Accept says; false: never one"),
]
RowId = Annotated[int | None, Query(ge=0, le=MAX_ID)]
LastEventId = Annotated[
    str | None, Header(description="For event streams: the last `id` received; wins over `after`")
]


def stream_answers(*others: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entry of a history's 200: what it offers beside a JSON page."""
    content: dict[str, Any] = {media_type: {"schema": {"type": "string"}} for media_type in others}
    content[EVENTS] = {}  # a schema would be one of all that is sent, which has no end
    return {200: {"description": "A page, or a stream that ends with an `end` event", "content": content}}


def row_position(after: RowId = None, cursor: RowId = None, last_event_id: LastEventId = None) -> int:
    """The id after which to read. `cursor` is another name of `after`, as every list has it.

    Raises:
        ApiError: 422 when both names are given, or for a Last-Event-ID that no stream has sent.
    """
    if last_event_id:
        if not _ROW_ID.fullmatch(last_event_id) or int(last_event_id) > MAX_ID:
            raise bad_last_event_id(last_event_id)
        return int(last_event_id)
    return one_of(after, cursor) or 0


def bad_last_event_id(value: str) -> ApiError:
    msg = f"got {value[:80]!r}, expected the id of an event of this stream"
    return invalid([Problem(("header", "Last-Event-ID"), msg, "Leave it out to begin at the start.")])


def end_of(session: Session, job_id: str) -> dict[str, Any] | None:
    """What the `end` event says: how the job ended, or None while something may still follow."""
    job = get_job(session, job_id)
    if job is None:
        return {"status": "deleted"}
    if job.status not in TERMINAL:
        return None
    return {"status": job.status, "reason": job.reason, "message": job.message}


@dataclass(frozen=True)
class RowHistory:
    """A kind of history that is rows with growing ids in the database.

    Attributes:
        event: the name of its events in a stream.
        page: the document of a page.
        rows: at most so many rows of a job after an id.
        document: a row as the API shows it.
    """

    event: str
    page: type[Page[Any]]
    rows: Callable[[Session, str, int, int], Sequence[Any]]
    document: Callable[[Any], BaseModel]


def answer_rows(
    request: Request,
    service: Service,
    history: RowHistory,
    job_id: str,
    after: int,
    limit: int,
    follow: bool | None,
    key: Hashable,
) -> Any:
    """One page of the history or, when the client wants that, a stream of all that follows `after`.

    Args:
        key: tells this job's history from all others that are followed.

    Raises:
        ApiError: 404 without such a job; 406 when the client accepts neither form.
    """
    media_type = negotiate(request, (JSON, EVENTS), follow=follow)
    with service.database.reading() as session:
        require_job(session, job_id)
        if media_type == JSON:
            rows = history.rows(session, job_id, after, limit + 1)
            items = [history.document(row) for row in rows[:limit]]
            more = len(rows) > limit
            return history.page(items=items, next_cursor=str(rows[limit - 1].id) if more else None)
    make_source = partial(_RowSource, service, history, job_id)
    return EventStreamResponse(follow_feed(service.hub, key, make_source, after))


class _RowSource:
    """A job's history as followers read it."""

    def __init__(self, service: Service, history: RowHistory, job_id: str) -> None:
        self._service = service
        self._history = history
        self._job_id = job_id

    def read(self, position: Any) -> Chunk:
        with self._service.database.reading() as session:
            end = end_of(session, self._job_id)  # first: what is terminal now has all its rows already
            rows = self._history.rows(session, self._job_id, position, STREAM_ROWS)
        if not rows:
            return Chunk(b"", position, end)
        data = b"".join(
            encode(self._history.event, self._history.document(row).model_dump(mode="json"), str(row.id))
            for row in rows
        )
        return Chunk(data, rows[-1].id)

    async def watch(self, feed: Feed) -> None:
        with self._service.hints.of_job(self._job_id) as changed:
            while True:
                changed.clear()
                await feed.announce()
                await happens(changed, self._service.settings.poll_s)
