"""Attempts that nobody keeps alive: found, ended, and their jobs queued again."""

from dataclasses import dataclass

from sqlalchemy import exists, select, update
from sqlalchemy.orm import Session

from store.clock import database_now
from store.completion import complete, has_result
from store.exclusion import note_failure
from store.reasons import Reason
from store.retries import judge
from store.retry_policy import DEFAULT_POLICY, RetryPolicy
from store.states import ACTIVE, Status, lock_job, transition
from store.tables import Attempt, AttemptNode, Job, OutboxMessage


@dataclass(frozen=True)
class Reaped:
    """An attempt that was ended, and the status its job has now."""

    job_id: str
    attempt: int
    status: Status
    reason: Reason


def reap(
    session: Session,
    *,
    grace_s: float,
    start_timeout_s: float,
    policy: RetryPolicy = DEFAULT_POLICY,
    limit: int = 100,
) -> list[Reaped]:
    """End attempts whose lease ran out `grace_s` ago, or that a host was told of `start_timeout_s` ago and
    never claimed. Their jobs go back to the queue; a host lost as often as the policy allows fails the job
    instead, a job that was asked to stop is cancelled, and one whose result is kept has succeeded.

    Several reapers may run at once.
    """
    now = database_now(session)
    lost = [_reap_lost(session, *key, now - grace_s, policy) for key in _lost(session, now - grace_s, limit)]
    blamed: set[tuple[str, str]] = set()
    late = [
        _reap_unclaimed(session, *key, policy, blamed)
        for key in _unclaimed(session, now - start_timeout_s, limit)
    ]
    for host, job_id in sorted(blamed):  # after the jobs: whoever holds a host waits for no job
        note_failure(session, host, job_id, Reason.start_timeout, policy.exclusion)
    _free_abandoned_devices(session, now - grace_s)
    return [reaped for reaped in lost + late if reaped is not None]


def _lost(session: Session, before: float, limit: int) -> list[tuple[str, int]]:
    query = (
        select(AttemptNode.job_id, AttemptNode.attempt)
        .join(Job, (Job.id == AttemptNode.job_id) & (Job.attempt == AttemptNode.attempt))
        .where(AttemptNode.ended_at.is_(None), AttemptNode.lease_until < before, Job.status.in_(ACTIVE))
        .distinct()
        .order_by(AttemptNode.job_id)
        .limit(limit)
    )
    return [(row.job_id, row.attempt) for row in session.execute(query)]


def _reap_lost(
    session: Session, job_id: str, attempt: int, before: float, policy: RetryPolicy
) -> Reaped | None:
    seen = lock_job(session, job_id)
    hosts = _silent_hosts(session, job_id, attempt, before)
    if seen is None or seen[0] not in ACTIVE or seen[1] != attempt or not hosts:
        return None  # renewed, finished or reaped since
    message = f"No sign of life from {', '.join(hosts)}."
    evidence = None
    if seen[0] is Status.stopping:
        to, reason = Status.cancelled, Reason.user_cancelled
    elif has_result(session, job_id, attempt):
        complete(session, job_id, attempt, actor="scheduler")
        return Reaped(job_id, attempt, Status.succeeded, Reason.completed)
    else:
        reason = Reason.host_lost
        evidence = {"attempt": attempt, "host": hosts[0], "message": message}
        verdict = judge(session, job_id, reason, policy)
        to = Status.queued if verdict.again else Status.failed
        message = f"{message} {verdict.note}".strip()
    transition(
        session,
        job_id,
        to,
        reason=reason,
        message=message,
        attempt=attempt,
        evidence=evidence,
        actor="scheduler",
    )
    return Reaped(job_id, attempt, to, reason)


def _silent_hosts(session: Session, job_id: str, attempt: int, before: float) -> list[str]:
    query = select(AttemptNode.host).where(
        AttemptNode.job_id == job_id,
        AttemptNode.attempt == attempt,
        AttemptNode.ended_at.is_(None),
        AttemptNode.lease_until < before,
    )
    return list(session.execute(query.order_by(AttemptNode.rank)).scalars())


def _unclaimed(session: Session, before: float, limit: int) -> list[tuple[str, int]]:
    query = (
        select(OutboxMessage.job_id, OutboxMessage.attempt)
        .where(OutboxMessage.first_published_at < before)
        .distinct()
        .order_by(OutboxMessage.job_id)
        .limit(limit)
    )
    return [(row.job_id, row.attempt) for row in session.execute(query)]


def _reap_unclaimed(
    session: Session, job_id: str, attempt: int, policy: RetryPolicy, blamed: set[tuple[str, str]]
) -> Reaped | None:
    """Adds the hosts that did not claim, each with the job, to `blamed`."""
    seen = lock_job(session, job_id)
    query = select(AttemptNode.host).where(
        AttemptNode.job_id == job_id, AttemptNode.attempt == attempt, AttemptNode.owner.is_(None)
    )
    hosts = list(session.execute(query.order_by(AttemptNode.rank)).scalars())
    if not hosts or seen != (Status.starting, attempt):
        return None  # claimed or cancelled since
    message = f"{', '.join(hosts)} did not take the job in time."
    reason = Reason.start_timeout
    evidence = {"attempt": attempt, "host": hosts[0], "message": message}
    blamed.update((host, job_id) for host in hosts)
    verdict = judge(session, job_id, reason, policy)
    to = Status.queued if verdict.again else Status.failed
    transition(
        session,
        job_id,
        to,
        reason=reason,
        message=f"{message} {verdict.note}".strip(),
        attempt=attempt,
        evidence=evidence,
        actor="scheduler",
    )
    return Reaped(job_id, attempt, to, reason)


def _free_abandoned_devices(session: Session, before: float) -> None:
    """Parts of ended attempts whose owner never let go, once their lease is over: their trainer is gone."""
    ended = exists().where(
        Attempt.job_id == AttemptNode.job_id,
        Attempt.number == AttemptNode.attempt,
        Attempt.ended_at.is_not(None),
    )
    session.execute(
        update(AttemptNode)
        .where(AttemptNode.ended_at.is_(None), AttemptNode.lease_until < before, ended)
        .values(ended_at=database_now(session))
    )
