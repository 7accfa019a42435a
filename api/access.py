"""Looking up what a path names, with answers that help when it is not there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from api.problems import ApiError, not_found
from api.service import Service
from store import tables
from store.checkpoints import RESULT, get_checkpoint
from store.datasets import find_dataset
from store.job_rows import JobRow, find_job_row
from store.jobs import get_job
from store.pipelines import PipelineState, get_pipeline

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True)
class Owned:
    """Things of one kind that belong to projects."""

    what: str
    listed_at: str
    table: type[tables.Job | tables.Dataset | tables.Pipeline]
    prefix: str = ""
    """What the ids begin with, in front of the id that is stored."""


OWNED: Mapping[str, Owned] = {
    "job_id": Owned("job", "/jobs", tables.Job),
    "dataset_id": Owned("data set", "/datasets", tables.Dataset),
    "pipeline_id": Owned("pipeline", "/pipelines", tables.Pipeline),
    "file_id": Owned("file", "/v1/files", tables.Dataset, "file-"),
    "fine_tuning_job_id": Owned("fine-tuning job", "/v1/fine_tuning/jobs", tables.Job, "ftjob-"),
}
"""What a path parameter of this name stands for, in every route."""


def names_owned(parameters: Mapping[str, Any]) -> bool:
    """Whether path parameters name a thing that belongs to a project."""
    return any(name in parameters for name in OWNED)


def require_visible(service: Service, project: str, parameters: Mapping[str, Any]) -> None:
    """Refuse path parameters that name a thing of another project, just as if there were no such thing.

    Args:
        project: the only one whose things the client may see.

    Raises: ApiError (404).
    """
    for name, owned in OWNED.items():
        if name in parameters and not _belongs(service, owned, parameters[name], project):
            raise not_found(owned.what, parameters[name], owned.listed_at)


def _belongs(service: Service, owned: Owned, thing: str, project: str) -> bool:
    thing = thing.removeprefix(owned.prefix)
    if not _ID.fullmatch(thing):
        return False
    with service.database.reading() as session:
        row = session.get(owned.table, thing)
        return row is not None and row.project == project


def require_job(session: Session, job_id: str) -> tables.Job:
    """The job of this id. Raises ApiError (404)."""
    job = get_job(session, job_id) if _ID.fullmatch(job_id) else None
    if job is None:
        raise not_found("job", job_id, "/jobs")
    return job


def require_job_row(session: Session, job_id: str) -> JobRow:
    """The job of this id, to be shown. Raises ApiError (404)."""
    row = find_job_row(session, job_id) if _ID.fullmatch(job_id) else None
    if row is None:
        raise not_found("job", job_id, "/jobs")
    return row


def require_pipeline(session: Session, pipeline_id: str) -> PipelineState:
    """The pipeline of this id. Raises ApiError (404)."""
    state = get_pipeline(session, pipeline_id) if _ID.fullmatch(pipeline_id) else None
    if state is None:
        raise not_found("pipeline", pipeline_id, "/pipelines")
    return state


def require_dataset(session: Session, dataset_id: str) -> tables.Dataset:
    """The data set of this id. Raises ApiError (404)."""
    dataset = find_dataset(session, None, dataset_id) if _ID.fullmatch(dataset_id) else None
    if dataset is None:
        raise not_found("data set", dataset_id, "/datasets")
    return dataset


def require_checkpoint(service: Service, job_id: str, name: str) -> tables.Checkpoint:
    """A checkpoint of a job. Raises ApiError (404)."""
    with service.database.reading() as session:
        require_job(session, job_id)
        row = get_checkpoint(session, job_id, name) if name.isprintable() else None
        if row is None or row.is_result:
            raise not_found("checkpoint", name, f"/jobs/{job_id}/checkpoints")
        return row


def require_result(service: Service, job_id: str) -> tables.Checkpoint:
    """The final model of a job. Raises ApiError (404) while there is none."""
    with service.database.reading() as session:
        job = require_job(session, job_id)
        row = get_checkpoint(session, job_id, RESULT)
        if row is None:
            detail = f"Job {job_id} is {job.status} and has no result."
            hint = f"GET /jobs/{job_id}/checkpoints lists what it has."
            raise ApiError("not-found", f"{detail} {hint}", job_status=job.status)
        return row
