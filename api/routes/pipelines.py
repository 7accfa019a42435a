"""Pipelines: jobs that are posted together, and use each other's results."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from api import pipelines
from api.openapi import json_body
from api.pagination import Cursor, PageLimit, valid_cursor
from api.principal import PrincipalDep
from api.routes.jobs import Body, IdempotencyKey
from api.schemas.pipelines import Pipeline, PipelinePage, PipelineRequest
from api.schemas.problems import answers
from api.service import ServiceDep
from store.pipelines import list_pipelines

router = APIRouter(tags=["pipelines"])

REPLAYED: dict[int | str, dict[str, Any]] = {
    200: {"model": Pipeline, "description": "The pipeline that this Idempotency-Key has made before"}
}


@router.post(
    "/pipelines",
    status_code=201,
    responses=REPLAYED | answers(409),
    openapi_extra=json_body(PipelineRequest),
)
async def submit(
    response: Response,
    service: ServiceDep,
    principal: PrincipalDep,
    body: Body,
    idempotency_key: IdempotencyKey = None,
) -> Pipeline:
    """Create jobs of which some use the results of others: all of them, or none when anything is wrong."""
    work = partial(pipelines.post, service, principal, body, idempotency_key)
    pipeline_id, created = await service.check(work)
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/pipelines/{pipeline_id}"
    return await run_in_threadpool(pipelines.document, service, pipeline_id)


@router.get("/pipelines")
def list_all(
    service: ServiceDep, principal: PrincipalDep, limit: PageLimit = 50, cursor: Cursor = None
) -> PipelinePage:
    """Pipelines, newest first."""
    with service.database.reading() as session, valid_cursor():
        page = list_pipelines(session, project=principal.visible_project, limit=limit, cursor=cursor)
        return PipelinePage(items=pipelines.documents(session, page.items), next_cursor=page.next_cursor)


@router.get("/pipelines/{pipeline_id}", responses=answers(404))
def show(service: ServiceDep, pipeline_id: str) -> Pipeline:
    """One pipeline as it is now, with its jobs."""
    return pipelines.document(service, pipeline_id)


@router.post("/pipelines/{pipeline_id}/cancel", responses=answers(404))
def cancel(service: ServiceDep, principal: PrincipalDep, pipeline_id: str) -> Pipeline:
    """Stop all of its jobs that are not finished. Safe to repeat."""
    return pipelines.cancel(service, principal, pipeline_id)


@router.delete("/pipelines/{pipeline_id}", status_code=204, responses=answers(404, 409))
def delete(service: ServiceDep, principal: PrincipalDep, pipeline_id: str) -> None:
    """Forget a pipeline, its jobs and their artifacts, once all of them are finished."""
    pipelines.delete(service, principal, pipeline_id)
