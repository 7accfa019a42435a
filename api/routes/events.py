"""What happened to a job."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from api.histories import Follow, RowHistory, answer_rows, row_position, stream_answers
from api.pagination import HistoryLimit
from api.schemas.histories import Event, EventPage
from api.schemas.problems import answers
from api.service import ServiceDep
from store.events import list_events

router = APIRouter(tags=["histories"])
EVENTS = RowHistory(event="event", page=EventPage, rows=list_events, document=Event.of)


@router.get("/jobs/{job_id}/events", response_model=EventPage, responses=stream_answers() | answers(404, 406))
def job_events(
    request: Request,
    service: ServiceDep,
    job_id: str,
    after: Annotated[int, Depends(row_position)],
    limit: HistoryLimit = 200,
    follow: Follow = None,
) -> EventPage | Response:
    """The job's events, oldest first: a page, or live as server-sent events until the job is finished."""
    return answer_rows(request, service, EVENTS, job_id, after, limit, follow, key=("events", job_id))
