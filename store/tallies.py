"""What has happened to jobs since one last looked, for counters and histograms.

Events are read in the order of their ids, but no younger than `SETTLED_S`: a transaction that began earlier
may commit later, and what lies behind the last id that was read is never looked at again.
"""

from typing import Any, NamedTuple

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from store.clock import database_now
from store.states import ACTIVE, Status
from store.tables import Attempt, Job, JobEvent

SETTLED_S = 10.0
"""No transaction of the service lasts so long."""
UNKNOWN = "unknown"
"""Task and project of a job that was deleted meanwhile."""


class Change(NamedTuple):
    """A job's move from one status to another.

    Attributes:
        waited_s: how long the job was queued, when it was given to hosts now.
        ran_s: how long its trainer ran, when the attempt has ended now; None when it never started.
    """

    task: str
    project: str
    device: str
    from_status: str
    to_status: str
    reason: str
    waited_s: float | None
    ran_s: float | None

    @property
    def ends_attempt(self) -> bool:
        return self.from_status in ACTIVE and self.to_status not in ACTIVE


def last_event(session: Session) -> int:
    """The id to begin with: nothing before it is counted."""
    return session.execute(select(func.max(JobEvent.id))).scalar() or 0


def changes_after(session: Session, after: int, limit: int = 2000) -> tuple[list[Change], int]:
    """Moves behind the event `after`, oldest first, and the id that continues: `after` when that was all."""
    settled = database_now(session) - SETTLED_S
    number = JobEvent.attempt - case((JobEvent.to_status == Status.queued, 1), else_=0)
    event = (JobEvent.id, JobEvent.type, JobEvent.time, JobEvent.from_status, JobEvent.to_status)
    query = (
        select(*event, JobEvent.reason, Job.task, Job.project, Job.device, Job.queued_at, Attempt.started_at)
        .outerjoin(Job, Job.id == JobEvent.job_id)
        .outerjoin(Attempt, (Attempt.job_id == JobEvent.job_id) & (Attempt.number == number))
        .where(JobEvent.id > after)
        .order_by(JobEvent.id)
        .limit(limit)
    )
    changes: list[Change] = []
    rows = session.execute(query).all()
    for row in rows:
        if row.type != "status":
            continue  # its time may be the trainer's
        if row.time > settled:
            return changes, after
        after = row.id
        if row.from_status is not None:
            changes.append(_change(row))
    return changes, rows[-1].id if len(rows) == limit else after


def _change(row: Any) -> Change:
    labels = (row.task or UNKNOWN, row.project or UNKNOWN, row.device or UNKNOWN)
    change = Change(*labels, row.from_status, row.to_status, row.reason or "", None, None)
    if change.to_status == Status.starting:
        return change._replace(waited_s=_between(row.queued_at, row.time))
    if change.ends_attempt:
        return change._replace(ran_s=_between(row.started_at, row.time))
    return change


def _between(begin: float | None, end: float) -> float | None:
    return None if begin is None or begin > end else end - begin
