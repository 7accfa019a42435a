"""The state machine of a job: which status may follow which, and why.

Every change of status goes through `transition`: one guarded UPDATE and one row in `job_events`, in the
caller's transaction. Terminal states are absorbing but for a retry that the user asks for.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from store.clock import database_now
from store.inputs import dependents, failure_of, input_states
from store.reasons import FAULTS, INTERRUPTIONS, Reason
from store.tables import Attempt, AttemptNode, Job, JobEvent, OutboxMessage
from store.webhooks import announce


class Status(StrEnum):
    """Where a job is; few on purpose, the `Reason` tells the rest."""

    queued = "queued"
    starting = "starting"
    running = "running"
    stopping = "stopping"
    succeeded = "succeeded"
    failed = "failed"
    cancelled = "cancelled"


TERMINAL = frozenset({Status.succeeded, Status.failed, Status.cancelled})
ACTIVE = frozenset({Status.starting, Status.running, Status.stopping})

TRANSITIONS: Mapping[tuple[Status, Status], frozenset[Reason]] = {
    (Status.queued, Status.starting): frozenset({Reason.placed}),
    (Status.queued, Status.cancelled): frozenset({Reason.user_cancelled}),
    (Status.queued, Status.failed): frozenset({Reason.dependency_failed}),
    (Status.starting, Status.running): frozenset({Reason.started}),
    (Status.starting, Status.stopping): frozenset({Reason.cancel_requested}),
    (Status.starting, Status.failed): FAULTS,
    (Status.starting, Status.queued): FAULTS | INTERRUPTIONS,
    (Status.running, Status.succeeded): frozenset({Reason.completed}),
    (Status.running, Status.stopping): frozenset({Reason.cancel_requested}),
    (Status.running, Status.failed): FAULTS - {Reason.start_timeout},
    (Status.running, Status.queued): (FAULTS | INTERRUPTIONS) - {Reason.start_timeout},
    (Status.stopping, Status.cancelled): frozenset({Reason.user_cancelled}),
    (Status.failed, Status.queued): frozenset({Reason.retried}),
    (Status.cancelled, Status.queued): frozenset({Reason.retried}),
}


def transition(
    session: Session,
    job_id: str,
    to: Status,
    *,
    reason: Reason,
    message: str = "",
    attempt: int | None = None,
    data: Mapping[str, Any] | None = None,
    evidence: Mapping[str, Any] | None = None,
    actor: str = "",
    from_: Collection[Status] | None = None,
) -> bool:
    """Move a job to another status and write down why.

    A move to `queued` raises the job's attempt number; a move out of the active states ends its live attempt;
    an end without what other jobs wait for fails those that are queued for it. A webhook hears of it.

    Args:
        attempt: refuse unless this is still the job's attempt (the fencing number).
        data: what else the event shall carry (JSON).
        evidence: what is known of a failure (JSON); it stays with the job until its next attempt ends.
        actor: who does it: a key, "scheduler", or a host.
        from_: narrow the states the move may start from.

    Returns: False when the job is unknown, in another state or at another attempt; nothing is changed then.
    Raises: ValueError when no state may go to `to` for this reason.
    """
    sources = {
        source for (source, target), reasons in TRANSITIONS.items() if target == to and reason in reasons
    }
    if not sources:
        raise ValueError(f"no job may become {to.value} because of {reason.value}")
    if from_ is not None:
        sources &= set(from_)
    seen = lock_job(session, job_id)
    if seen is None or seen[0] not in sources or attempt not in (None, seen[1]):
        return False
    status, number = seen
    now = database_now(session)
    if status in ACTIVE and to not in ACTIVE:
        _end_attempt(session, job_id, number, reason, message, now)
    values = {"status": to, "reason": reason, "message": message, "updated_at": now, **_times(to, now)}
    if to not in ACTIVE:
        values["evidence"] = None if evidence is None else dict(evidence)
    next_number = number + 1 if to is Status.queued else number
    session.execute(
        update(Job)
        .where(Job.id == job_id, Job.status == status, Job.attempt == number)
        .values(**values, attempt=next_number)
    )
    event = JobEvent(
        project=select(Job.project).where(Job.id == job_id).scalar_subquery(),
        job_id=job_id,
        actor=actor,
        time=now,
        type="status",
        attempt=next_number,
        from_status=status,
        to_status=to,
        reason=reason,
        message=message,
        data=dict(data or {}),
    )
    session.add(event)
    session.flush()
    announce(session, job_id, event.id)
    if to in TERMINAL:
        _fail_dependents(session, job_id)
    return True


def _fail_dependents(session: Session, job_id: str) -> None:
    """Fail the queued jobs that need what this one has ended without: their wait would never end."""
    for dependent in dependents(session, job_id, Status.queued):
        failure = failure_of(input_states(session, [dependent])[dependent])
        if failure is None:
            continue
        message, evidence = failure
        transition(
            session,
            dependent,
            Status.failed,
            reason=Reason.dependency_failed,
            message=message,
            data=evidence,
            evidence=evidence,
            actor="scheduler",
            from_={Status.queued},
        )


def lock_job(session: Session, job_id: str) -> tuple[Status, int] | None:
    """Hold the job's row until the transaction ends; its status and attempt number, or None when unknown."""
    row = session.execute(
        select(Job.status, Job.attempt).where(Job.id == job_id).with_for_update()
    ).one_or_none()
    return None if row is None else (Status(row.status), row.attempt)


def _times(to: Status, now: float) -> dict[str, Any]:
    if to is Status.queued:
        return {"queued_at": now, "started_at": None, "finished_at": None, "placement": None}
    if to is Status.running:
        return {"started_at": now}
    if to in TERMINAL:
        return {"finished_at": now}
    return {}


def _end_attempt(
    session: Session, job_id: str, number: int, reason: Reason, message: str, now: float
) -> None:
    """Close the attempt for hosts that never claimed it; the others keep their devices until they let go."""
    session.execute(
        update(Attempt)
        .where(Attempt.job_id == job_id, Attempt.number == number, Attempt.ended_at.is_(None))
        .values(ended_at=now, reason=reason, message=message)
    )
    session.execute(
        update(AttemptNode)
        .where(AttemptNode.job_id == job_id, AttemptNode.attempt == number, AttemptNode.owner.is_(None))
        .values(ended_at=now)
    )
    session.execute(
        delete(OutboxMessage).where(OutboxMessage.job_id == job_id, OutboxMessage.attempt == number)
    )
