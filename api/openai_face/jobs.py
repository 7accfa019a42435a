"""Fine-tuning jobs of OpenAI's API: the jobs that were made through it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select

from api.creation import Creation, create_job
from api.explain import explain, records
from api.openai_face import documents, history
from api.openai_face.files import joined, named_file, unknown_after
from api.openai_face.identifiers import JOB, bare, reference
from api.openai_face.models import ModelFacts, model_facts
from api.openai_face.requests import MARK, MARKED, job_body, task_of
from api.openai_face.schemas import (
    DpoHyperparametersRequest,
    FineTuningJob,
    FineTuningRequest,
    JobCheckpoint,
    JobEvent,
    ListOf,
    ModelObject,
)
from api.openai_face.upload import WITH_SYSTEM
from api.principal import Principal
from api.problems import ApiError, invalid, not_found
from api.service import Service
from api.sources import StoredSources
from store import tables
from store.checkpoints import list_checkpoints
from store.clock import database_now
from store.hosts import list_hosts
from store.jobs import existing_job, get_job, list_jobs
from store.metrics import TRAIN
from store.pages import encode_cursor
from store.states import Status
from trainer.config.chat_templates import NONE
from trainer.config.problems import Problem

LISTED_AT = "/v1/fine_tuning/jobs"


def create(service: Service, principal: Principal, body: Mapping[str, Any], key: str | None) -> Creation:
    """The job of a body. Raises ApiError (422) with everything that is wrong."""
    return create_job(service, principal, body, key, partial(_translated, service, principal))


def _translated(service: Service, principal: Principal, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /jobs for one of POST /v1/fine_tuning/jobs."""
    request = _read(body)
    training = named_file(service, principal, "training_file", request.training_file)
    task = task_of(request, training)
    sources = StoredSources(service.database, service.artifacts, principal.project)
    facts = model_facts(reference(request.model), service.roots, sources)
    _require_template(request, facts, training)
    data = training
    if request.validation_file is not None:
        validation = named_file(service, principal, "validation_file", request.validation_file)
        data = joined(service, principal, training, validation)
    return job_body(request, task, training, data, facts, _has_gpu(service, request))


def _read(body: Mapping[str, Any]) -> FineTuningRequest:
    try:
        return FineTuningRequest.model_validate(body)
    except ValidationError as error:
        known = (*FineTuningRequest.model_fields, *DpoHyperparametersRequest.model_fields)
        raise invalid([explain(each, ("body",), known) for each in records(error)]) from error


def _require_template(request: FineTuningRequest, facts: ModelFacts, training: tables.Dataset) -> None:
    """Refuse system messages that the model would never see: without a chat template texts are raw."""
    count = training.splits["train"].get(WITH_SYSTEM, 0)
    chosen = request.regatta.config.get("chat_template") if request.regatta else None
    if not count or facts.has_template or chosen not in (None, NONE):
        return
    msg = f"{count} of its records have a system message, and {request.model} has no chat template for them"
    hint = "Take them out, use a model with a template, or name one in regatta.config.chat_template."
    raise invalid([Problem(("body", "training_file"), msg, hint)])


def _has_gpu(service: Service, request: FineTuningRequest) -> bool:
    wanted = request.regatta.resources if request.regatta else None
    if wanted is not None and wanted.device is not None:
        return wanted.device == "gpu"
    with service.database.reading() as session:
        return any(host.device == "gpu" for host in list_hosts(session))


def require_job(service: Service, job_id: str) -> tables.Job:
    """The job of this id. Raises ApiError (404), also for jobs that were not made through this API."""
    with service.database.reading() as session:
        row = get_job(session, bare(job_id, JOB))
    if row is None or row.labels.get(MARK) != MARKED:
        raise not_found("fine-tuning job", job_id, LISTED_AT)
    return row


def show_new(service: Service, job_id: str) -> FineTuningJob:
    """A job that was made just now. Raises: NotFound when it is gone already."""
    with service.database.reading() as session:
        return documents.fine_tuning_job(session, existing_job(session, job_id), database_now(session))


def show(service: Service, row: tables.Job) -> FineTuningJob:
    """A job as OpenAI's API shows it."""
    with service.database.reading() as session:
        return documents.fine_tuning_job(session, row, database_now(session))


def list_all(
    service: Service, principal: Principal, after: str | None, limit: int, metadata: Mapping[str, str]
) -> ListOf[FineTuningJob]:
    """A part of the jobs, newest first. Raises ApiError (422) for an unknown `after`."""
    project = principal.visible_project
    with service.database.reading() as session:
        cursor = None
        if after is not None:
            last = get_job(session, bare(after, JOB))
            if last is None or not principal.sees(last.project):
                raise unknown_after(after, LISTED_AT)
            cursor = encode_cursor(last.created_at, last.id)
        wanted = {**metadata, MARK: MARKED}
        page = list_jobs(session, limit=limit, project=project, labels=wanted, cursor=cursor)
        now = database_now(session)
        return ListOf[FineTuningJob](
            data=[documents.fine_tuning_job(session, row, now) for row in page.items],
            has_more=page.next_cursor is not None,
        )


def list_events(service: Service, row: tables.Job, after: str | None, limit: int) -> ListOf[JobEvent]:
    """A part of what has happened to a job, newest first."""
    with service.database.reading() as session:
        return history.list_events(session, row, after, limit)


def checkpoints(service: Service, job: tables.Job, after: str | None, limit: int) -> ListOf[JobCheckpoint]:
    """A part of the checkpoints that a job keeps, newest first."""
    with service.database.reading() as session:
        rows = list_checkpoints(session, job.id)[::-1]
        query = select(tables.Metric).where(
            tables.Metric.job_id == job.id,
            tables.Metric.kind == TRAIN,
            tables.Metric.step.in_([row.step for row in rows]),
        )
        losses = {row.step: row.values.get("loss") for row in session.execute(query).scalars()}
    items = [documents.checkpoint(job, row, losses) for row in rows]
    ids = [item.id for item in items]
    if after is not None and after not in ids:
        raise unknown_after(after, f"{LISTED_AT}/{JOB}{job.id}/checkpoints")
    start = 0 if after is None else ids.index(after) + 1
    return ListOf[JobCheckpoint](data=items[start : start + limit], has_more=start + limit < len(items))


def trained_models(service: Service, principal: Principal) -> list[ModelObject]:
    """The models that jobs of this API have made, newest first."""
    models: list[ModelObject] = []
    cursor = None
    with service.database.reading() as session:
        while True:
            page = list_jobs(
                session,
                limit=200,
                project=principal.visible_project,
                status=Status.succeeded,
                labels={MARK: MARKED},
                cursor=cursor,
            )
            models += map(documents.trained_model, page.items)
            cursor = page.next_cursor
            if cursor is None:
                return models


def not_supported(what: str) -> ApiError:
    """The refusal of a call that jobs have no state for."""
    detail = (
        f"A job cannot be {what}: it has no such state. Cancelling it saves a checkpoint, and "
        "POST /jobs/{id}/retry goes on from there."
    )
    return ApiError("not-supported", detail)
