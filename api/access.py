"""Looking up what a path names, with answers that help when it is not there."""

import re

from sqlalchemy.orm import Session

from api.problems import ApiError, not_found
from api.service import Service
from store import tables
from store.checkpoints import RESULT, get_checkpoint
from store.jobs import get_job

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def require_job(session: Session, job_id: str) -> tables.Job:
    """The job of this id. Raises ApiError (404)."""
    job = get_job(session, job_id) if _ID.fullmatch(job_id) else None
    if job is None:
        raise not_found("job", job_id, "/jobs")
    return job


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
