"""Asking attempts to make room for a job that is more urgent."""

from collections.abc import Mapping, Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.clock import database_now
from store.events import add_event
from store.states import Status, lock_job
from store.tables import Attempt, Job


def preempt(session: Session, job_id: str, attempts: Mapping[str, int]) -> bool:
    """Ask attempts, by their jobs, to stop with a checkpoint so that a queued job can start: all or none.

    Their runners learn it when they renew their leases; the jobs wait for devices then, at no charge. The
    history of each of the jobs tells it.

    Returns: False when the job is not queued, or an attempt is not at work, any more; nothing is asked then.
    """
    seen = {each: lock_job(session, each) for each in sorted({job_id, *attempts})}
    urgent = seen[job_id]
    at_work = all(
        seen[other] in ((Status.starting, number), (Status.running, number))
        for other, number in attempts.items()
    )
    if urgent is None or urgent[0] is not Status.queued or not at_work:
        return False
    now = database_now(session)
    for other, number in attempts.items():
        session.execute(
            update(Attempt)
            .where(Attempt.job_id == other, Attempt.number == number, Attempt.preempted_at.is_(None))
            .values(preempted_for=job_id, preempted_at=now)
        )
    _tell(session, job_id, sorted(attempts))
    return True


def is_preempted(session: Session, job_id: str, attempt: int) -> bool:
    """Whether the attempt was asked to make room."""
    query = select(Attempt.preempted_at).where(Attempt.job_id == job_id, Attempt.number == attempt)
    return session.execute(query).scalar_one_or_none() is not None


def _tell(session: Session, job_id: str, others: Sequence[str]) -> None:
    """Write it into the histories. Who sees one of the jobs need not know of those of other projects."""
    query = select(Job.id, Job.project, Job.priority).where(Job.id.in_([job_id, *others]))
    jobs = {row.id: row for row in session.execute(query)}
    urgent = jobs[job_id]
    for other in others:
        known = {"job_id": job_id} if jobs[other].project == urgent.project else {}
        message = (
            f"{_named(known)} of priority {urgent.priority} needs the devices of this one, whose priority is "
            f"{jobs[other].priority}: it is asked to stop with a checkpoint and goes on later"
        )
        add_event(session, other, "preemption", message, data=known, actor="scheduler")
    known = [other for other in others if jobs[other].project == urgent.project]
    count = f"{len(others)} job{'' if len(others) == 1 else 's'} of lower priority"
    message = f"{count} {'is' if len(others) == 1 else 'are'} asked to stop to make room for this one"
    add_event(session, job_id, "preemption", message, data={"job_ids": known}, actor="scheduler")


def _named(known: Mapping[str, str]) -> str:
    return f"job {known['job_id']}" if known else "a job of another project"
