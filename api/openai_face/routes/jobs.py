"""Fine-tuning jobs: create, list, show, cancel; their events and checkpoints."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from api.body import read_json_object
from api.changes import cancel_job
from api.openai_face import jobs
from api.openai_face.errors import refusals
from api.openai_face.identifiers import JOB, bare
from api.openai_face.schemas import FineTuningJob, FineTuningRequest, JobCheckpoint, JobEvent, ListOf
from api.openapi import json_body
from api.principal import PrincipalDep
from api.query import DEEP_QUERY
from api.routes.jobs import IdempotencyKey
from api.service import ServiceDep

router = APIRouter(prefix="/v1/fine_tuning/jobs", tags=["openai"])

After = Annotated[str | None, Query(max_length=300)]


async def _body(request: Request, service: ServiceDep) -> dict[str, Any]:
    return await read_json_object(request, service.settings.max_body_bytes, service.settings.body_timeout_s)


@router.post("", responses=refusals(409, 507), openapi_extra=json_body(FineTuningRequest))
async def create(
    service: ServiceDep,
    principal: PrincipalDep,
    body: Annotated[dict[str, Any], Depends(_body)],
    idempotency_key: IdempotencyKey = None,
) -> FineTuningJob:
    """Create a job: it is checked as a whole, then queued."""
    made = await service.check(partial(jobs.create, service, principal, body, idempotency_key))
    return await run_in_threadpool(jobs.show_new, service, made.job_id)


@router.get("", openapi_extra={DEEP_QUERY: ["metadata"]})
def list_all(
    request: Request,
    service: ServiceDep,
    principal: PrincipalDep,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> ListOf[FineTuningJob]:
    """Jobs that were made through this API, newest first; `metadata[key]=value` filters."""
    wanted = {
        name.removeprefix("metadata[").removesuffix("]"): value
        for name, value in request.query_params.items()
        if name.startswith("metadata[")
    }
    return jobs.list_all(service, principal, after, limit, wanted)


@router.get("/{fine_tuning_job_id}", responses=refusals(404))
def show(service: ServiceDep, fine_tuning_job_id: str) -> FineTuningJob:
    """One job as it is now."""
    return jobs.show(service, jobs.require_job(service, fine_tuning_job_id))


@router.post("/{fine_tuning_job_id}/cancel", responses=refusals(404, 409))
def cancel(service: ServiceDep, principal: PrincipalDep, fine_tuning_job_id: str) -> FineTuningJob:
    """Stop a job; while it runs it saves a checkpoint first."""
    jobs.require_job(service, fine_tuning_job_id)
    return jobs.show(service, cancel_job(service, principal, bare(fine_tuning_job_id, JOB)))


@router.post("/{fine_tuning_job_id}/pause", responses=refusals(404))
def pause(service: ServiceDep, fine_tuning_job_id: str) -> FineTuningJob:
    """Refused: no state of a job is a pause."""
    jobs.require_job(service, fine_tuning_job_id)
    raise jobs.not_supported("paused")


@router.post("/{fine_tuning_job_id}/resume", responses=refusals(404))
def resume(service: ServiceDep, fine_tuning_job_id: str) -> FineTuningJob:
    """Refused: no state of a job is a pause."""
    jobs.require_job(service, fine_tuning_job_id)
    raise jobs.not_supported("resumed")


@router.get("/{fine_tuning_job_id}/events", responses=refusals(404))
def list_events(
    service: ServiceDep,
    fine_tuning_job_id: str,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> ListOf[JobEvent]:
    """What has happened to a job, and its metrics, newest first."""
    return jobs.list_events(service, jobs.require_job(service, fine_tuning_job_id), after, limit)


@router.get("/{fine_tuning_job_id}/checkpoints", responses=refusals(404))
def list_checkpoints(
    service: ServiceDep,
    fine_tuning_job_id: str,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> ListOf[JobCheckpoint]:
    """The checkpoints that a job keeps, newest first."""
    return jobs.checkpoints(service, jobs.require_job(service, fine_tuning_job_id), after, limit)
