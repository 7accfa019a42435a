"""Idempotency keys: the same key and body make one job, however often and concurrently they come."""

import hashlib

from sqlalchemy import Select, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from store.clock import database_now
from store.errors import IdempotencyConflict
from store.job_rows import JobRow
from store.jobs import NewJob, add_job, existing_job, existing_row, new_job_id
from store.tables import IdempotencyKey, Job


def create_or_replay(session: Session, key: str, body: bytes, new: NewJob) -> tuple[JobRow, bool]:
    """The job of this key, and whether this call has created it.

    The key is stored in the transaction of the job: a second request waits for the first one's end and then
    either replays it or, when it was rolled back, takes its place. A key is kept as long as its job.

    Args:
        body: the request body in the form that has to be equal, for example its canonical JSON.

    Raises: IdempotencyConflict when the key came with another body.
    """
    job_id = new_job_id()
    known = take_or_find(session, new.project, key, body, job_id)
    if known is not None:
        return existing_row(session, known.id), False
    return add_job(session, new, job_id=job_id), True


def take_or_find(session: Session, project: str, key: str, body: bytes, job_id: str) -> Job | None:
    """Take the key for a job that is created next in this transaction; the key's job if it has one.

    Raises: IdempotencyConflict when the key came with another body.
    """
    body_hash = hashlib.sha256(body).hexdigest()
    if _take_key(session, project, key, body_hash, job_id):
        return None
    known = session.execute(_known(project, key)).scalar_one()
    return _replayed(session, known, body_hash)


def find_replay(session: Session, project: str, key: str, body: bytes) -> Job | None:
    """The job that this key has made in the project, None when the key is new.

    Raises: IdempotencyConflict when the key came with another body.
    """
    known = session.execute(_known(project, key)).scalar_one_or_none()
    return None if known is None else _replayed(session, known, hashlib.sha256(body).hexdigest())


def _known(project: str, key: str) -> Select[IdempotencyKey]:
    return select(IdempotencyKey).where(IdempotencyKey.project == project, IdempotencyKey.key == key)


def _replayed(session: Session, known: IdempotencyKey, body_hash: str) -> Job:
    if known.body_hash != body_hash:
        raise IdempotencyConflict(
            f"Idempotency-Key: {known.key!r} was used for another request body; use a new key for a new job"
        )
    return existing_job(session, known.job_id)


def _take_key(session: Session, project: str, key: str, body_hash: str, job_id: str) -> bool:
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    row = insert(IdempotencyKey).values(
        project=project, key=key, body_hash=body_hash, job_id=job_id, created_at=database_now(session)
    )
    taken = session.execute(row.on_conflict_do_nothing().returning(IdempotencyKey.key))
    return taken.scalar_one_or_none() is not None
