"""Published weights of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from store.artifacts import Manifest
from store.clock import database_now
from store.tables import Checkpoint

RESULT = "result"
"""Name of the final model among a job's checkpoints."""


@dataclass(frozen=True)
class Published:
    """A checkpoint that lies complete among the artifacts under `key`."""

    name: str
    key: str
    manifest: Manifest
    step: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    best: bool = False


def record_checkpoint(session: Session, job_id: str, attempt: int, published: Published) -> Checkpoint:
    """Make a published checkpoint known; one of the same name is replaced. The best one is the only best."""
    if published.best:
        session.execute(update(Checkpoint).where(Checkpoint.job_id == job_id).values(best=False))
    checkpoint = session.merge(
        Checkpoint(
            job_id=job_id,
            name=published.name,
            attempt=attempt,
            step=published.step,
            is_result=published.name == RESULT,
            best=published.best,
            metrics=dict(published.metrics),
            key=published.key,
            bytes=published.manifest.bytes,
            files=[entry.as_dict() for entry in published.manifest.files],
            created_at=database_now(session),
        )
    )
    session.flush()
    return checkpoint


def list_checkpoints(session: Session, job_id: str) -> list[Checkpoint]:
    """The job's checkpoints by step, without the result."""
    query = select(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.is_result.is_(False))
    return list(session.execute(query.order_by(Checkpoint.step, Checkpoint.created_at)).scalars())


def get_checkpoint(session: Session, job_id: str, name: str) -> Checkpoint | None:
    """One checkpoint by name (`RESULT`: the final model), or None."""
    return session.get(Checkpoint, (job_id, name), populate_existing=True)


def remove_checkpoint(session: Session, job_id: str, name: str) -> bool:
    """Forget a checkpoint; its artifacts are the caller's to delete. False when there was none."""
    removed = session.execute(
        delete(Checkpoint)
        .where(Checkpoint.job_id == job_id, Checkpoint.name == name)
        .returning(Checkpoint.name)
    )
    return removed.scalar_one_or_none() is not None
