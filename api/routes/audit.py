"""What was done, by whom, over all jobs: also to those that are gone, and to keys, projects and secrets."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import AwareDatetime

from api.eventfeed import EventSource
from api.feeds import follow as follow_feed
from api.histories import Follow, row_position, stream_answers
from api.negotiation import EVENTS, JSON, negotiate
from api.pagination import HistoryLimit
from api.principal import PrincipalDep
from api.problems import not_found
from api.schemas.histories import Event, EventPage
from api.schemas.jobs import PRINTABLE
from api.schemas.problems import answers
from api.service import ServiceDep
from api.sse import EventStreamResponse
from store.feed import Filter, Horizon, all_events

router = APIRouter(tags=["histories"])

Word = Annotated[str | None, Query(max_length=255, pattern=PRINTABLE)]
Moment = Annotated[AwareDatetime | None, Query(description="RFC 3339, with its zone")]


def _filter(
    principal: PrincipalDep,
    project: Annotated[
        str | None, Query(max_length=63, description="Only its events; others': `admin`")
    ] = None,
    job: Annotated[str | None, Query(max_length=36, pattern=PRINTABLE, description="Only this job's")] = None,
    type: Word = None,  # noqa: A002 - the name that clients send
    actor: Word = None,
    since: Moment = None,
    until: Moment = None,
) -> Filter:
    """What the client asks for and may see. Raises ApiError (404) for another project than its own."""
    if project is not None and not principal.sees(project):
        raise not_found("project", project, "/projects")
    return Filter(
        project=project or principal.visible_project,
        job_id=job,
        type=type,
        actor=actor,
        since=None if since is None else since.timestamp(),
        until=None if until is None else until.timestamp(),
    )


@router.get("/events", response_model=EventPage, responses=stream_answers() | answers(404, 406))
def all_that_happened(
    request: Request,
    service: ServiceDep,
    wanted: Annotated[Filter, Depends(_filter)],
    after: Annotated[int, Depends(row_position)],
    limit: HistoryLimit = 200,
    follow: Follow = None,
) -> Any:
    """Events of all jobs, oldest first: a page, or live as server-sent events without end."""
    if negotiate(request, (JSON, EVENTS), follow=follow) == JSON:
        return _page(service, wanted, after, limit)
    return _stream(service, wanted, after)


def _page(service: ServiceDep, wanted: Filter, after: int, limit: int) -> EventPage:
    horizon = Horizon(service.database).look()
    with service.database.reading() as session:
        rows = all_events(session, wanted, after, horizon, limit + 1)
    more = str(rows[limit - 1].id) if len(rows) > limit else None
    return EventPage(items=[Event.of(row) for row in rows[:limit]], next_cursor=more)


def _stream(service: ServiceDep, wanted: Filter, after: int) -> Response:
    return EventStreamResponse(
        follow_feed(service.hub, ("all events", wanted), lambda: EventSource(service, wanted), after)
    )
