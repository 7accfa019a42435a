"""Jobs: create, check, list, show, stop, repeat, forget."""

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.body import read_json_object
from api.changes import cancel_job, change_job, delete_job
from api.creation import checked, create_job
from api.labels import LabelFilters
from api.openapi import json_body
from api.pagination import Cursor, PageLimit, valid_cursor
from api.preview import MOST_EXAMPLES
from api.preview import preview as read_preview
from api.principal import PrincipalDep
from api.reruns import clone_job, retry_job
from api.schemas.estimates import Estimate
from api.schemas.jobs import (
    PRINTABLE,
    Job,
    JobPage,
    JobRequest,
    JobSummaryPage,
    Preview,
    Validation,
)
from api.schemas.problems import ProblemItem, answers
from api.schemas.reruns import ChangeRequest, CloneRequest, RetryRequest
from api.service import ServiceDep
from api.shown import show_created, show_job, show_page
from store.job_rows import list_job_rows
from store.states import Status

router = APIRouter(tags=["jobs"])

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="A text of your choice, such as a UUID: however often it is sent, it makes one job",
    ),
]
FilterText = Annotated[str | None, Query(max_length=200, pattern=PRINTABLE)]
REPLAYED: dict[int | str, dict[str, Any]] = {
    200: {"model": Job, "description": "The job that this Idempotency-Key has made before"}
}


async def _body(request: Request, service: ServiceDep) -> dict[str, Any]:
    return await read_json_object(request, service.settings.max_body_bytes, service.settings.body_timeout_s)


async def _optional_body(request: Request, service: ServiceDep) -> dict[str, Any]:
    """The body; an empty object when none was sent."""
    sent = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    return await _body(request, service) if sent else {}


Body = Annotated[dict[str, Any], Depends(_body)]
OptionalBody = Annotated[dict[str, Any], Depends(_optional_body)]


@router.post(
    "/jobs",
    status_code=201,
    response_model=Job,
    responses=REPLAYED | answers(409),
    openapi_extra=json_body(JobRequest),
)
async def submit(
    service: ServiceDep,
    principal: PrincipalDep,
    body: Body,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Create a job: it is checked as a whole, then stored as `queued`."""

    def create() -> Response:
        return show_created(service, create_job(service, principal, body, idempotency_key))

    return await service.check(create)


@router.post("/jobs/validate", responses=answers(409), openapi_extra=json_body(JobRequest))
async def validate(
    service: ServiceDep,
    principal: PrincipalDep,
    body: Body,
    preview: Annotated[
        int, Query(ge=0, le=MOST_EXAMPLES, description="Show so many training records token by token")
    ] = 0,
) -> Validation:
    """Everything that POST /jobs checks; nothing is stored."""
    submission = await service.check(partial(checked, service, principal, body, count=True))
    shown, warnings = None, []
    if preview:
        shown, warnings = await service.check(
            partial(read_preview, submission.request.task, submission.local, preview)
        )
    return Validation(
        task=submission.request.task,
        config=submission.given,
        resolved_config=submission.resolved,
        resources=submission.resources,
        statistics=submission.statistics,
        warnings=[ProblemItem.of(warning) for warning in (*submission.warnings, *warnings)],
        estimate=None if submission.estimate is None else Estimate.of(submission.estimate),
        preview=None if shown is None else Preview.model_validate(shown),
    )


@router.get("/jobs", response_model=JobPage | JobSummaryPage)
def list_all(
    service: ServiceDep,
    principal: PrincipalDep,
    labels: LabelFilters,
    status: Status | None = None,
    task: FilterText = None,
    name: FilterText = None,
    text: Annotated[
        str | None,
        Query(max_length=200, pattern=PRINTABLE, description="Part of a name, or how an id begins"),
    ] = None,
    limit: PageLimit = 50,
    cursor: Cursor = None,
    view: Annotated[
        Literal["full", "summary"], Query(description="summary: without the configs, a tenth of the size")
    ] = "full",
) -> Response:
    """Jobs that match all filters, newest first."""
    with service.database.reading() as session, valid_cursor():
        page = list_job_rows(
            session,
            project=principal.visible_project,
            status=status,
            task=task,
            name=name,
            text=text,
            labels=labels,
            limit=limit,
            cursor=cursor,
            summary=view == "summary",
        )
        return show_page(session, page, summary=view == "summary")


@router.get("/jobs/{job_id}", response_model=Job, responses=answers(404))
def show(service: ServiceDep, job_id: str) -> Response:
    """One job as it is now."""
    return show_job(service, job_id)


@router.post("/jobs/{job_id}/cancel", response_model=Job, responses=answers(404, 409))
def cancel(service: ServiceDep, principal: PrincipalDep, job_id: str) -> Response:
    """Stop a job: at once while it waits, else it saves a checkpoint first (`stopping`). Safe to repeat."""
    return show_job(service, cancel_job(service, principal, job_id).id)


@router.post(
    "/jobs/{job_id}/retry",
    response_model=Job,
    responses=answers(404, 409),
    openapi_extra=json_body(RetryRequest, required=False),
)
async def retry(service: ServiceDep, principal: PrincipalDep, job_id: str, body: OptionalBody) -> Response:
    """Queue a failed or cancelled job again, with changes where a body names some; it goes on from its last
    checkpoint unless it shall begin anew. Jobs that failed only because of it are queued again too.
    """
    row = await service.check(partial(retry_job, service, principal, job_id, body))
    return await run_in_threadpool(show_job, service, row.id)


@router.post(
    "/jobs/{job_id}/clone",
    status_code=201,
    response_model=Job,
    responses=REPLAYED | answers(404, 409),
    openapi_extra=json_body(CloneRequest, required=False),
)
async def clone(
    service: ServiceDep,
    principal: PrincipalDep,
    job_id: str,
    body: OptionalBody,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Create a job with the request of another one, with changes where a body names some."""

    def create() -> Response:
        return show_created(service, clone_job(service, principal, job_id, body, idempotency_key))

    return await service.check(create)


@router.patch(
    "/jobs/{job_id}",
    response_model=Job,
    responses=answers(404, 409),
    openapi_extra=json_body(ChangeRequest),
)
async def change(service: ServiceDep, principal: PrincipalDep, job_id: str, body: Body) -> Response:
    """Change the labels or the name of a job, or its priority while it is queued."""
    row = await run_in_threadpool(change_job, service, principal, job_id, body)
    return await run_in_threadpool(show_job, service, row.id)


@router.delete("/jobs/{job_id}", status_code=204, responses=answers(404, 409))
def delete(service: ServiceDep, principal: PrincipalDep, job_id: str) -> None:
    """Forget a finished job, its histories and its artifacts; GET /events keeps its events."""
    delete_job(service, principal, job_id)
