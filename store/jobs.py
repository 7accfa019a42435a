"""Jobs: create, read, list, cancel, delete."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import uuid_utils
from sqlalchemy import delete, exists, insert, select, update
from sqlalchemy.orm import Session, defer

from store.clock import database_now
from store.errors import Conflict, NotFound
from store.events import add_event
from store.inputs import (
    Input,
    add_inputs,
    awaits_input,
    dependents,
)
from store.job_rows import LONG, MAX_PAGE, JobRow, find_job_row, insert_job_row, matching
from store.pages import Page, cut_page
from store.quotas import require_room
from store.reasons import Reason
from store.secrets import add_job_secrets
from store.states import TERMINAL, Status, lock_job, transition
from store.tables import AttemptNode, Base, Job, Pipeline
from store.webhooks import NewWebhook, announce

SHOWN_USERS = 10
UNFINISHED = tuple(status for status in Status if status not in TERMINAL)
_INSERT_LABEL = insert(Base.metadata.tables["job_labels"])
_EVENTS = Base.metadata.tables["job_events"]
_INSERT_EVENT = insert(_EVENTS).returning(_EVENTS.c.id)
DEFAULT_PROJECT = "default"
"""The project of everybody who shows no key."""


@dataclass(frozen=True)
class NewJob:
    """What a client asks for, already validated: `config_given` as it came, `config_resolved` in full.

    `secrets` are encrypted.
    """

    task: str
    config_given: Mapping[str, Any]
    config_resolved: Mapping[str, Any]
    project: str = DEFAULT_PROJECT
    submitted_by: str = ""
    name: str | None = None
    nodes: int = 1
    devices_per_node: int = 1
    device: str = "cpu"
    priority: int = 0
    max_retries: int = 0
    timeout_s: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Mapping[str, Any], ...] = ()
    estimate: Mapping[str, Any] | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    webhook: NewWebhook | None = None
    inputs: tuple[Input, ...] = ()
    pipeline_id: str | None = None
    pipeline_step: str | None = None


def create_job(session: Session, new: NewJob, *, job_id: str | None = None) -> Job:
    """Store a new job, and read it. Raises: as `add_job`."""
    return existing_job(session, add_job(session, new, job_id=job_id).id)


def add_job(session: Session, new: NewJob, *, job_id: str | None = None) -> JobRow:
    """Store a new job, `queued` at attempt 1; what is stored.

    Raises: InputGone when it refers to what is not there; QuotaExceeded when its project has too many in the
    queue.
    """
    require_room(session, new.project)
    now = database_now(session)
    columns: dict[str, Any] = {
        "id": job_id or new_job_id(),
        "project": new.project,
        "submitted_by": new.submitted_by,
        "name": new.name,
        "pipeline_id": new.pipeline_id,
        "pipeline_step": new.pipeline_step,
        "task": new.task,
        "status": Status.queued,
        "reason": Reason.submitted,
        "priority": new.priority,
        "nodes": new.nodes,
        "devices_per_node": new.devices_per_node,
        "device": new.device,
        "max_retries": new.max_retries,
        "timeout_s": new.timeout_s,
        "config_given": dict(new.config_given),
        "config_resolved": dict(new.config_resolved),
        "warnings": [dict(warning) for warning in new.warnings],
        "estimate": None if new.estimate is None else dict(new.estimate),
        "created_at": now,
        "updated_at": now,
        "queued_at": now,
    }
    # statements instead of objects: a session takes longer to find out what to write than to write it
    stored = insert_job_row(session, columns)
    event = {
        "project": new.project,
        "job_id": columns["id"],
        "actor": new.submitted_by,
        "time": now,
        "type": "status",
        "attempt": 1,
        "to_status": Status.queued,
        "reason": Reason.submitted,
    }
    event_id = session.connection().execute(_INSERT_EVENT, event).scalar_one()
    if not (new.labels or new.inputs or new.secrets or new.webhook):
        return stored
    _add_parts(session, columns["id"], event_id, new)
    return existing_row(session, columns["id"])


def _add_parts(session: Session, job_id: str, event_id: int, new: NewJob) -> None:
    """What lies in other tables."""
    if new.labels:
        rows = [{"job_id": job_id, "key": key, "value": value} for key, value in new.labels.items()]
        session.execute(_INSERT_LABEL, rows)
    if new.inputs:
        add_inputs(session, job_id, new.project, new.inputs)
    if new.secrets:
        add_job_secrets(session, job_id, new.project, new.secrets)
    if new.webhook is not None:
        session.add(new.webhook.row(job_id))
        session.flush()
        announce(session, job_id, event_id)


def new_job_id() -> str:
    """A new id; ids sort by the time they were made."""
    return str(uuid_utils.uuid7())


def get_job(session: Session, job_id: str) -> Job | None:
    """The job as it is now, or None when there is none of this id."""
    return session.execute(
        select(Job).where(Job.id == job_id), execution_options={"populate_existing": True}
    ).scalar_one_or_none()


def existing_ids(session: Session, job_ids: Iterable[str]) -> set[str]:
    """Those of the ids that jobs have."""
    wanted = sorted(job_ids)
    found: set[str] = set()
    for start in range(0, len(wanted), MAX_PAGE):
        query = select(Job.id).where(Job.id.in_(wanted[start : start + MAX_PAGE]))
        found.update(session.execute(query).scalars())
    return found


def list_jobs(session: Session, *, limit: int, **filters: Any) -> Page[Job]:
    """Jobs that match all filters, newest first; filters and errors as for `matching`."""
    jobs = session.execute(matching(select(Job), limit=limit, **filters)).scalars().all()
    return cut_page(jobs, limit)


def queued_jobs(session: Session, limit: int = MAX_PAGE) -> list[Job]:
    """Jobs that wait for a place and for nothing else: highest priority first, then the oldest. Their configs
    and other long members are left unread.
    """
    query = (
        select(Job)
        .options(*(defer(column) for column in LONG))
        .where(~awaits_input(), Job.status == Status.queued)
        .order_by(Job.priority.desc(), Job.created_at, Job.id)
        .limit(limit)
    )
    return list(session.execute(query).scalars())


def explain_wait(session: Session, job_id: str, message: str) -> None:
    """Let a queued job say what it waits for. No event is written: every pass of the scheduler may say it."""
    session.execute(
        update(Job)
        .where(Job.id == job_id, Job.status == Status.queued, Job.message != message)
        .values(message=message)
    )


def request_cancel(session: Session, job_id: str, actor: str = "") -> Job:
    """Stop a job: at once while no host has it, else through its runner (`stopping`).

    Asking again while it stops changes nothing.
    Raises: NotFound; Conflict when the job is finished.
    """
    status, attempt = locked_job(session, job_id)
    if status in TERMINAL:
        raise Conflict(f"job {job_id} is {status.value}; only an unfinished job can be cancelled")
    if status is Status.queued:
        transition(session, job_id, Status.cancelled, reason=Reason.user_cancelled, actor=actor)
    elif status is not Status.stopping:
        transition(session, job_id, Status.stopping, reason=Reason.cancel_requested, actor=actor)
        if not _is_claimed(session, job_id, attempt):
            transition(
                session,
                job_id,
                Status.cancelled,
                reason=Reason.user_cancelled,
                actor=actor,
                message="No host had started the job yet.",
            )
    return existing_job(session, job_id)


def _holds_devices(session: Session, job_id: str) -> bool:
    held = exists().where(AttemptNode.job_id == job_id, AttemptNode.ended_at.is_(None))
    return session.execute(select(held)).scalar_one()


def _is_claimed(session: Session, job_id: str, attempt: int) -> bool:
    claimed = exists().where(
        AttemptNode.job_id == job_id, AttemptNode.attempt == attempt, AttemptNode.owner.is_not(None)
    )
    return session.execute(select(claimed)).scalar_one()


def delete_job(session: Session, job_id: str, actor: str = "") -> None:
    """Forget a finished job and everything the database knows of it, but its events: the last tells of this.

    Raises: NotFound; Conflict while the job is not finished, still holds devices, or is used by jobs that are
        not finished.
    """
    status, _ = locked_job(session, job_id)
    if status not in TERMINAL:
        raise Conflict(f"job {job_id} is {status.value}; cancel it before you delete it")
    if _holds_devices(session, job_id):
        raise Conflict(f"job {job_id} has ended, but a host still winds it down; try again in a minute")
    if users := dependents(session, job_id, *UNFINISHED):
        users_shown = f"jobs that are not finished: {shown_ids(users)}"
        raise Conflict(f"job {job_id} is used by {users_shown}; cancel them first")
    job = existing_job(session, job_id)
    pipeline_id = job.pipeline_id
    data = {"name": job.name, "task": job.task, "status": job.status}
    add_event(session, job_id, "deleted", data=data, actor=actor)
    session.execute(delete(Job).where(Job.id == job_id))
    if pipeline_id is not None:
        _forget_empty_pipeline(session, pipeline_id)


def shown_ids(job_ids: list[str]) -> str:
    """The first ids of a list, for messages."""
    return ", ".join(job_ids[:SHOWN_USERS]) + (", …" if len(job_ids) > SHOWN_USERS else "")


def _forget_empty_pipeline(session: Session, pipeline_id: str) -> None:
    left = exists().where(Job.pipeline_id == pipeline_id)
    session.execute(delete(Pipeline).where(Pipeline.id == pipeline_id, ~left))


def update_progress(session: Session, job_id: str, attempt: int, **progress: Any) -> bool:
    """Merge into the job's progress; False when `attempt` is outdated."""
    seen = lock_job(session, job_id)
    if seen is None or seen[1] != attempt:
        return False
    known = session.execute(select(Job.progress).where(Job.id == job_id)).scalar_one()
    set_columns(session, job_id, progress={**known, **progress}, updated_at=database_now(session))
    return True


def existing_job(session: Session, job_id: str) -> Job:
    """The job as it is now. Raises: NotFound."""
    job = get_job(session, job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id!r}")
    return job


def existing_row(session: Session, job_id: str) -> JobRow:
    """The job as it is now, to be shown. Raises: NotFound."""
    row = find_job_row(session, job_id)
    if row is None:
        raise NotFound(f"there is no job {job_id!r}")
    return row


def locked_job(session: Session, job_id: str) -> tuple[Status, int]:
    """Hold the job's row until the transaction ends; its status and attempt number. Raises: NotFound."""
    seen = lock_job(session, job_id)
    if seen is None:
        raise NotFound(f"there is no job {job_id!r}")
    return seen


def set_columns(session: Session, job_id: str, **values: Any) -> None:
    """Set columns of a job that the caller holds."""
    session.execute(update(Job).where(Job.id == job_id).values(**values))
