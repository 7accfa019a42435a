"""Starting points that many store tests share."""

from dataclasses import replace
from typing import Any

from sqlalchemy import update
from sqlalchemy.orm import Session

from store.attempts import Claim, Node, claim, place
from store.database import Database
from store.hosts import register_host
from store.jobs import NewJob, create_job, existing_job
from store.tables import AttemptNode, Job, OutboxMessage

HOST = "gpu01"
OWNER = "runner-1"
TTL_S = 60.0


def new_job(**changes: Any) -> NewJob:
    """A small valid job."""
    config = {"max_steps": 3}
    return replace(NewJob("finetune", config_given=config, config_resolved=config), **changes)


def queued_job(session: Session, **changes: Any) -> Job:
    """A job that waits for a place."""
    return create_job(session, new_job(**changes))


def host(session: Session, name: str = HOST, devices: int = 2) -> None:
    """A registered host with CPU devices."""
    register_host(session, name, device="cpu", devices=[{"index": index} for index in range(devices)])


def placed_job(session: Session, **changes: Any) -> Job:
    """A job in `starting`, placed on device 0 of HOST."""
    host(session)
    job = queued_job(session, **changes)
    assert place(session, job, [Node(HOST, (0,))])
    return existing_job(session, job.id)


def claimed_job(session: Session, **changes: Any) -> tuple[Job, Claim]:
    """A job in `starting` whose attempt OWNER has claimed."""
    job = placed_job(session, **changes)
    taken = claim(session, job.id, 1, HOST, OWNER, ttl_s=TTL_S)
    assert taken is not None
    return job, taken


def run_out_of_time(database: Database, job_id: str) -> None:
    """Move the job's leases and announcements far into the past."""
    with database.transaction() as session:
        session.execute(
            update(AttemptNode)
            .where(AttemptNode.job_id == job_id)
            .values(lease_until=AttemptNode.lease_until - 100_000)
        )
        session.execute(
            update(OutboxMessage)
            .where(OutboxMessage.job_id == job_id)
            .values(
                due_at=OutboxMessage.due_at - 100_000,
                first_published_at=OutboxMessage.first_published_at - 100_000,
            )
        )
