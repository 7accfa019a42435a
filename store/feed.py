"""The events of all jobs and of the service itself, in one order that a follower can rely on.

Within a job ids grow in commit order, for its row is held. Across jobs PostgreSQL gives ids out before they
are committed: 7 may be seen while 6 still waits, and who then goes on behind 7 never sees 6. So nothing is
read beyond the horizon: the newest id at a moment of which all who were writing events have ended.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from store.database import Database
from store.tables import JobEvent

LOOK_S = 0.01

# whoever has inserted an event keeps this lock until its transaction ends; it is taken before the id is
_WRITERS = text(
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' "
    "AND granted AND relation = 'job_events'::regclass "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@dataclass(frozen=True)
class Filter:
    """Which events; None is no condition. Times in unix seconds, `until` not included."""

    project: str | None = None
    job_id: str | None = None
    type: str | None = None
    actor: str | None = None
    since: float | None = None
    until: float | None = None


class Horizon:
    """Up to which id no event can appear any more.

    Args:
        patience_s: how long to wait for those who write; a transaction that takes longer holds back what was
            written after it began, until it ends.
    """

    def __init__(self, database: Database, patience_s: float = 1.0) -> None:
        self._database = database
        self._patience_s = patience_s
        self._settled = 0

    def look(self) -> int:
        """The horizon now. Never goes back."""
        with self._database.reading() as session:
            newest = session.execute(select(func.max(JobEvent.id))).scalar_one_or_none() or 0
            if newest > self._settled and self._is_settled(session):
                self._settled = newest
        return self._settled

    def _is_settled(self, session: Session) -> bool:
        """Whether all who may hold an id below one that was just seen come to their end in time."""
        if session.get_bind().dialect.name == "sqlite":
            return True  # one writes at a time
        give_up = time.monotonic() + self._patience_s
        writers = set(session.execute(_WRITERS).scalars())
        while writers and time.monotonic() < give_up:
            time.sleep(LOOK_S)
            writers &= set(session.execute(_WRITERS).scalars())
        return not writers


def all_events(session: Session, wanted: Filter, after: int, horizon: int, limit: int) -> Sequence[JobEvent]:
    """Events with an id above `after` and not beyond the horizon, oldest first."""
    query = select(JobEvent).where(JobEvent.id > after, JobEvent.id <= horizon)
    columns = (
        (JobEvent.project, wanted.project),
        (JobEvent.job_id, wanted.job_id),
        (JobEvent.type, wanted.type),
        (JobEvent.actor, wanted.actor),
    )
    for column, value in columns:
        if value is not None:
            query = query.where(column == value)
    if wanted.since is not None:
        query = query.where(JobEvent.time >= wanted.since)
    if wanted.until is not None:
        query = query.where(JobEvent.time < wanted.until)
    return session.execute(query.order_by(JobEvent.id).limit(limit)).scalars().all()
