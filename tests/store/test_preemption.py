"""Asking attempts to make room."""

from sqlalchemy.orm import Session

from store.attempts import Claim, Node, claim, place, renew
from store.database import Database
from store.events import list_events
from store.hosts import holdings
from store.jobs import existing_job, request_cancel
from store.preemption import preempt
from store.projects import create_project
from store.states import Status
from store.tables import Attempt, Job
from tests.store.given import HOST, TTL_S, host, queued_job


def at_work(session: Session, name: str, device: int, **changes: object) -> tuple[Job, Claim]:
    job = queued_job(session, **changes)
    assert place(session, job, [Node(HOST, (device,))])
    taken = claim(session, job.id, 1, HOST, name, ttl_s=TTL_S)
    assert taken is not None
    return job, taken


def told(session: Session, job_id: str) -> list[tuple[str, dict]]:
    return [(e.message, e.data) for e in list_events(session, job_id) if e.type == "preemption"]


def test_who_is_asked_learns_it_at_the_next_renewal_and_both_histories_tell_it(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        create_project(session, "others")
        own, _ = at_work(session, "first", 0)
        other, _ = at_work(session, "second", 1, project="others", priority=-1)
        urgent = queued_job(session, priority=3, devices_per_node=2)
        assert not renew(session, own.id, 1, "first", ttl_s=TTL_S).preempted
        assert preempt(session, urgent.id, {own.id: 1, other.id: 1})
        for job, owner in ((own, "first"), (other, "second")):
            assert renew(session, job.id, 1, owner, ttl_s=TTL_S).preempted
            assert session.get_one(Attempt, (job.id, 1)).preempted_for == urgent.id
        assert all(part.leaving and part.preempted_for == urgent.id for part in holdings(session))
        asked = "is asked to stop with a checkpoint and goes on later"
        assert told(session, own.id) == [
            (
                f"job {urgent.id} of priority 3 needs the devices of this one, whose priority is 0: "
                f"it {asked}",
                {"job_id": urgent.id},
            )
        ]
        assert told(session, other.id) == [
            (
                "a job of another project of priority 3 needs the devices of this one, whose priority is -1: "
                f"it {asked}",
                {},
            )
        ]
        assert told(session, urgent.id) == [
            (
                "2 jobs of lower priority are asked to stop to make room for this one",
                {"job_ids": [own.id]},
            )
        ]


def test_nobody_is_asked_when_one_of_them_or_the_urgent_job_has_moved_on(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        first, _ = at_work(session, "first", 0)
        second, _ = at_work(session, "second", 1)
        urgent = queued_job(session, priority=3)
        request_cancel(session, second.id)
        assert not preempt(session, urgent.id, {first.id: 1, second.id: 1})
        assert not preempt(session, urgent.id, {first.id: 2})
        request_cancel(session, urgent.id)
        assert existing_job(session, urgent.id).status == Status.cancelled
        assert not preempt(session, urgent.id, {first.id: 1})
        assert not renew(session, first.id, 1, "first", ttl_s=TTL_S).preempted
