"""A job whose result is kept is done: what is heard of its attempt afterwards does not undo that."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from store.checkpoints import RESULT, get_checkpoint
from store.reasons import Reason
from store.states import Status, transition
from store.tables import JobEvent

DONE = "The trainer has finished and its result is kept."


def has_result(session: Session, job_id: str, since: int) -> bool:
    """Whether this attempt or a later one has kept the job's result."""
    result = get_checkpoint(session, job_id, RESULT)
    return result is not None and result.attempt >= since


def is_done(session: Session, job_id: str) -> bool:
    """Whether an attempt has kept the job's result since somebody last asked to run the job."""
    retried = select(func.max(JobEvent.attempt)).where(
        JobEvent.job_id == job_id, JobEvent.type == "status", JobEvent.reason == Reason.retried
    )
    return has_result(session, job_id, session.execute(retried).scalar_one() or 1)


def complete(
    session: Session,
    job_id: str,
    attempt: int,
    *,
    message: str = DONE,
    actor: str = "",
    data: Mapping[str, Any] | None = None,
) -> bool:
    """Move a job that starts or runs to its success; False when it is not at this attempt any more."""
    transition(session, job_id, Status.running, reason=Reason.started, attempt=attempt, actor=actor)
    return transition(
        session,
        job_id,
        Status.succeeded,
        reason=Reason.completed,
        message=message,
        attempt=attempt,
        data=data,
        actor=actor,
    )
