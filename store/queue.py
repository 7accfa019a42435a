"""The queue as its jobs see it: who is before them, and what they wait for."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
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


def places(session: Session, jobs: Collection[Job]) -> dict[str, Place]:
    """The places of those of the jobs that are queued: two queries, however many they and all others are."""
    queued = [job.id for job in jobs if job.status == Status.queued]
    if not queued:
        return {}
    waiting = {job_id: waiting_for(states) for job_id, states in input_states(session, queued).items()}
    front = _front(session) if any(not waiting.get(job_id) for job_id in queued) else {}
    found = {}
    for job_id in queued:
        position = front.get(job_id)
        if waits := waiting.get(job_id):
            found[job_id] = Place(None, None, waits)
        elif position is None:
            found[job_id] = Place(None, MOST_COUNTED)
        else:
            found[job_id] = Place(position, position - 1)
    return found


def _front(session: Session) -> dict[str, int]:
    """The places of the first jobs, each among those of its kind of device."""
    query = (
        select(Job.id, Job.device)
        .where(Job.status == Status.queued, ~awaits_input())
        .order_by(Job.priority.desc(), Job.created_at, Job.id)
        .limit(MOST_COUNTED)
    )
    count: Counter[str] = Counter()
    positions = {}
    for row in session.execute(query):
        count[row.device] += 1
        positions[row.id] = count[row.device]
    return positions
