"""The numbers of a job, one row per kind and step."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.events import touch_job
from store.tables import Metric

TRAIN = "train"
EVAL = "eval"


def record(
    session: Session, job_id: str, attempt: int, kind: str, step: int, time: float, values: Mapping[str, Any]
) -> Metric:
    """Store the numbers of a step. Those of an earlier attempt are replaced, under a new id so that followers
    see the new ones; those of a later attempt stay.

    Raises: NotFound.
    """
    touch_job(session, job_id)
    known = session.execute(
        select(Metric).where(Metric.job_id == job_id, Metric.kind == kind, Metric.step == step)
    ).scalar_one_or_none()
    if known is not None:
        if known.attempt > attempt:
            return known
        session.delete(known)
        session.flush()
    metric = Metric(job_id=job_id, attempt=attempt, kind=kind, step=step, time=time, values=dict(values))
    session.add(metric)
    session.flush()
    return metric


def list_metrics(
    session: Session, job_id: str, kind: str | None = None, after: int = 0, limit: int = 1000
) -> list[Metric]:
    """Metrics with an id above `after` in the order they were recorded; the last one's id continues."""
    query = select(Metric).where(Metric.job_id == job_id, Metric.id > after).order_by(Metric.id).limit(limit)
    if kind is not None:
        query = query.where(Metric.kind == kind)
    return list(session.execute(query).scalars())
