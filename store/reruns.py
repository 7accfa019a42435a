"""Running jobs again, and changing those that exist."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from store.errors import Conflict, RetryImpossible
from store.events import add_event
from store.inputs import Input, add_inputs, dependents, failure_of, hold_inputs, input_states, inputs_of
from store.jobs import UNFINISHED, existing_job, locked_job, set_columns, shown_ids
from store.quotas import require_room
from store.reasons import Reason
from store.states import Status, lock_job, transition
from store.tables import Checkpoint, Job, JobInput, JobLabel, Metric

RETRYABLE = (Status.failed, Status.cancelled)


@dataclass(frozen=True)
class Rerun:
    """What a retry changes.

    Attributes:
        values: columns of the job with their new values.
        inputs: what it uses from now on; None: what it used before.
        told: what the event tells of the changes (JSON).
        from_scratch: begin anew; what was saved so far is forgotten, its artifacts are the caller's to
            delete.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Input, ...] | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    from_scratch: bool = False


def retry_job(session: Session, job_id: str, actor: str = "", rerun: Rerun | None = None) -> Job:
    """Queue a failed or cancelled job again; it goes on from its last checkpoint. The jobs that have failed
    only because this one had are queued again with it.

    Raises: NotFound; Conflict for a job in any other state; RetryImpossible; InputGone; QuotaExceeded.
    """
    rerun = rerun or Rerun()
    require_room(session, existing_job(session, job_id).project)
    hold_inputs(session, inputs_of(session, job_id) if rerun.inputs is None else rerun.inputs)
    status, _ = locked_job(session, job_id)
    if status not in RETRYABLE:
        raise Conflict(f"job {job_id} is {status.value}; only a failed or cancelled job can be retried")
    if rerun.from_scratch and (users := dependents(session, job_id, *UNFINISHED, of_checkpoints=True)):
        raise Conflict(
            f"checkpoints of job {job_id} are used by jobs that are not finished: {shown_ids(users)}"
        )
    if rerun.inputs is not None:
        session.execute(delete(JobInput).where(JobInput.job_id == job_id))
        add_inputs(session, job_id, existing_job(session, job_id).project, rerun.inputs)
    elif failure := failure_of(input_states(session, [job_id]).get(job_id, ())):
        hint = "clone it with another input"
        if failure[1]["status"] is not None:
            hint = f"retry what it needs, which takes this job with it, or {hint}"
        raise RetryImpossible(f"job {job_id} cannot run, {failure[0]}; {hint}")
    transition(session, job_id, Status.queued, reason=Reason.retried, data=rerun.told, actor=actor)
    set_columns(
        session, job_id, retries=0, infrastructure_faults=0, setbacks=0, not_before=None, **rerun.values
    )
    if rerun.from_scratch:
        _forget_progress(session, job_id)
    _revive_dependents(session, job_id, actor)
    return existing_job(session, job_id)


def users_of_result(session: Session, job_id: str) -> list[str]:
    """Ids of the jobs that will take what a job makes when it is retried, those made first in front."""
    waiting = dependents(session, job_id, *UNFINISHED)
    return waiting + dependents(session, job_id, Status.failed, reason=Reason.dependency_failed)


def can_have_inputs(session: Session, job_id: str) -> bool:
    """Whether a job uses others, and nothing that it uses is known to be missing."""
    states = input_states(session, [job_id]).get(job_id, ())
    return bool(states) and failure_of(states) is None


def _forget_progress(session: Session, job_id: str) -> None:
    session.execute(delete(Checkpoint).where(Checkpoint.job_id == job_id))
    session.execute(delete(Metric).where(Metric.job_id == job_id))
    set_columns(session, job_id, fresh_attempt=Job.attempt, progress={})


def _revive_dependents(session: Session, job_id: str, actor: str) -> None:
    for dependent in dependents(session, job_id, Status.failed, reason=Reason.dependency_failed):
        lock_job(session, dependent)
        if failure_of(input_states(session, [dependent])[dependent]):
            continue  # it needs another job too, which has failed as well
        message = f"Job {job_id}, which it needs, was retried."
        if transition(session, dependent, Status.queued, reason=Reason.retried, message=message, actor=actor):
            set_columns(session, dependent, evidence=None)
            _revive_dependents(session, dependent, actor)


def change_job(
    session: Session,
    job_id: str,
    *,
    actor: str = "",
    priority: int | None = None,
    labels: Mapping[str, str | None] | None = None,
    **name: str | None,
) -> Job:
    """Change what may be changed of a job at any time, and its priority while it is queued. An event tells
    what was changed, by whom.

    Args:
        labels: set, or removed where the value is None.
        name: `name="new"`, or `name=None` for none; left out: as it is.

    Raises: NotFound; Conflict for the priority of a job that is not queued.
    """
    status, _ = locked_job(session, job_id)
    job = existing_job(session, job_id)
    changed: dict[str, list[Any]] = {}
    if priority is not None and priority != job.priority:
        if status is not Status.queued:
            raise Conflict(f"job {job_id} is {status.value}; only a queued job's priority can be changed")
        changed["priority"] = [job.priority, priority]
    if "name" in name and name["name"] != job.name:
        changed["name"] = [job.name, name["name"]]
    for key, value in (labels or {}).items():
        if job.labels.get(key) != value:
            changed[f"labels.{key}"] = [job.labels.get(key), value]
            session.execute(delete(JobLabel).where(JobLabel.job_id == job_id, JobLabel.key == key))
            if value is not None:
                session.add(JobLabel(job_id=job_id, key=key, value=value))
    if not changed:
        return job
    columns = {key: changed[key][1] for key in ("priority", "name") if key in changed}
    if columns:
        set_columns(session, job_id, **columns)
    session.flush()
    session.expire(job)
    add_event(session, job_id, "changed", ", ".join(changed), data={"changed": changed}, actor=actor)
    return existing_job(session, job_id)
