"""The queue as its jobs see it: who is before them, and what they wait for."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from store.inputs import awaits_input, input_states, waiting_for
from store.states import Status
from store.tables import Job

MOST_COUNTED = 1000
"""So far from the front a place is told, which is as far as the scheduler looks."""


@dataclass(frozen=True)
class Place:
    """Where a job stands among those that wait for devices of the same kind.

    Attributes:
        position: counts from 1; None while it waits for other jobs, and far behind.
        ahead: how many are before it, at least; None while it waits for other jobs.
        waits_for: the jobs that it waits for, in words; empty when there are none.
    """

    position: int | None
    ahead: int | None
    waits_for: str = ""


def places(session: Session, jobs: Collection[Any], *, may_wait: bool = True) -> dict[str, Place]:
    """The places of those of the jobs that are queued: a few queries, however many there are.

    Args:
        jobs: objects or rows of the table `jobs`.
        may_wait: whether some of them may wait for other jobs.
    """
    queued = [job for job in jobs if job.status == Status.queued]
    if not queued:
        return {}
    states = input_states(session, [job.id for job in queued]) if may_wait else {}
    waits = {job_id: reason for job_id, its in states.items() if (reason := waiting_for(its))}
    found = {job_id: Place(None, None, reason) for job_id, reason in waits.items()}
    ready = [job for job in queued if job.id not in waits]
    ahead = _ahead_of_one(session, ready[0]) if len(ready) == 1 else _ahead_of_many(session, ready)
    for job in ready:
        before = ahead.get(job.id, MOST_COUNTED)
        found[job.id] = Place(before + 1 if before < MOST_COUNTED else None, before)
    return found


def _ahead_of_one(session: Session, job: Any) -> dict[str, int]:
    wanted = {"device": job.device, "priority": job.priority, "created_at": job.created_at, "id": job.id}
    return {job.id: session.execute(_AHEAD, wanted).scalar_one()}


def _ahead_of_many(session: Session, jobs: Collection[Any]) -> dict[str, int]:
    """By job; those far behind are left out."""
    found: dict[str, int] = {}
    for device in {job.device for job in jobs}:
        ids = [job.id for job in jobs if job.device == device]
        for job_id, position in session.execute(_POSITIONS, {"device": device, "ids": ids}):
            found[job_id] = position - 1
    return found


_ORDER = (Job.priority.desc(), Job.created_at, Job.id)
_LINE = select(Job.id).where(Job.status == Status.queued, Job.device == bindparam("device"), ~awaits_input())


def _ahead() -> Select[int]:
    """How many jobs of a kind are before one, counted as far as places are told."""
    priority, created_at = bindparam("priority"), bindparam("created_at")
    older = or_(
        Job.created_at < created_at,
        and_(Job.created_at == created_at, Job.id < bindparam("id", type_=Job.id.type)),
    )
    before = or_(Job.priority > priority, and_(Job.priority == priority, older))
    front = _LINE.where(before).order_by(*_ORDER).limit(MOST_COUNTED).subquery()
    return select(func.count()).select_from(front)


def _positions() -> Select[Any, Any]:
    """The positions of some of the first jobs of a kind, from 1."""
    line = _LINE.add_columns(func.row_number().over(order_by=_ORDER).label("position"))
    front = line.order_by(*_ORDER).limit(MOST_COUNTED).subquery()
    return select(front.c.id, front.c.position).where(front.c.id.in_(bindparam("ids", expanding=True)))


_AHEAD = _ahead()
_POSITIONS = _positions()
