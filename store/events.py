"""The history of a job."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.clock import database_now
from store.errors import NotFound
from store.tables import Job, JobEvent


def add_event(
    session: Session,
    job_id: str,
    kind: str,
    message: str = "",
    *,
    data: Mapping[str, Any] | None = None,
    time: float | None = None,
    actor: str = "",
) -> JobEvent:
    """Append to the job's history.

    Args:
        kind: what happened, for example "warning"; "status" is written by `transition` alone.
        time: when it happened (unix seconds); default: now.
        actor: who has done it: a key, "scheduler", or a host.

    Raises: NotFound.
    """
    event = JobEvent(
        attempt=touch_job(session, job_id),
        project=select(Job.project).where(Job.id == job_id).scalar_subquery(),
        job_id=job_id,
        actor=actor,
        time=database_now(session) if time is None else time,
        type=kind,
        message=message,
        data=dict(data or {}),
    )
    session.add(event)
    session.flush()
    return event


def touch_job(session: Session, job_id: str) -> int:
    """Hold the job's row, so that what is inserted next gets its ids in commit order; the attempt number.

    Raises: NotFound.
    """
    held = session.execute(
        update(Job).where(Job.id == job_id).values(updated_at=database_now(session)).returning(Job.attempt)
    ).scalar_one_or_none()
    if held is None:
        raise NotFound(f"there is no job {job_id!r}")
    return held


def list_events(session: Session, job_id: str, after: int = 0, limit: int = 100) -> list[JobEvent]:
    """Events with an id above `after`, oldest first; the last one's id continues."""
    query = select(JobEvent).where(JobEvent.job_id == job_id, JobEvent.id > after).order_by(JobEvent.id)
    return list(session.execute(query.limit(limit)).scalars())
