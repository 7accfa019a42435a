"""Whether the service itself repeats an attempt that has failed, and when."""

from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.clock import database_now
from store.reasons import REASONS, Reason, Retry
from store.retry_policy import RetryPolicy
from store.tables import Job


@dataclass(frozen=True)
class Verdict:
    """`again`: the job goes back to the queue. `note`: what there is to say of it, possibly nothing."""

    again: bool
    note: str = ""


def judge(session: Session, job_id: str, reason: Reason, policy: RetryPolicy) -> Verdict:
    """Decide what a failed attempt means for its job, whose row the caller holds, and charge it.

    A job that is repeated after a fault, or made room for another one, rests first, until its `not_before`.
    """
    retry = REASONS[reason].retry
    if retry is Retry.never:
        return Verdict(again=False)
    if retry is Retry.free:
        return Verdict(again=True)
    if retry is Retry.spaced:
        rest = {"not_before": database_now(session) + policy.pause_s(1)}
        session.execute(update(Job).where(Job.id == job_id).values(**rest))
        return Verdict(again=True)
    job = session.execute(
        select(Job.retries, Job.max_retries, Job.infrastructure_faults, Job.setbacks).where(Job.id == job_id)
    ).one()
    setbacks, retries, faults = job.setbacks + 1, job.retries, job.infrastructure_faults
    note = ""
    if retry is Retry.counted:
        again = retries < job.max_retries
        retries += again
    else:
        faults += 1
        again = faults < policy.fault_limit
        if not again:
            note = f"This was fault {faults} in a row without a new checkpoint; the job is not tried again."
    rest = {"not_before": database_now(session) + policy.pause_s(setbacks)} if again else {}
    session.execute(
        update(Job)
        .where(Job.id == job_id)
        .values(retries=retries, infrastructure_faults=faults, setbacks=setbacks, **rest)
    )
    return Verdict(again, note)


def forgive(session: Session, job_id: str) -> None:
    """The job has made progress: what comes now is a first setback again."""
    session.execute(update(Job).where(Job.id == job_id).values(infrastructure_faults=0, setbacks=0))
