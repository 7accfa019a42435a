"""The numbers of a job, one row per kind and step."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Text, cast, func, select
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


def thinned_metrics(session: Session, job_id: str, kind: str, points: int) -> tuple[list[Metric], bool]:
    """About so many metrics that show the course of every number, in the order they were recorded; all when
    there are no more. Of each stretch the rows stay in which a number is lowest or highest, and the first and
    the last row of all. The second value says whether some were left out.
    """
    one_kind = Metric.job_id == job_id, Metric.kind == kind
    count = session.execute(select(func.count()).select_from(Metric).where(*one_kind)).scalar_one()
    if count <= points:
        return list_metrics(session, job_id, kind, limit=points), False
    query = select(Metric.id, cast(Metric.values, Text)).where(*one_kind).order_by(Metric.id)
    numbers = len(session.execute(select(Metric.values).where(*one_kind).limit(1)).scalar_one())
    stretch = max(1, count * 2 * numbers // points)  # two rows of each number
    ends = select(func.min(Metric.id), func.max(Metric.id)).where(*one_kind)
    kept = set(session.execute(ends).one())
    for rows in session.execute(query).partitions(stretch):
        ids, texts = zip(*rows, strict=True)
        kept |= _outstanding(ids, json.loads(f"[{','.join(texts)}]"))
    return _of_ids(session, sorted(kept)), True


def _outstanding(ids: Sequence[int], rows: Sequence[Mapping[str, Any]]) -> set[int]:
    """The ids of the rows in which some number is lowest or highest."""
    kept: set[int] = set()
    for name in {name for values in rows for name in values}:
        numbers = [
            (value, row_id)
            for values, row_id in zip(rows, ids, strict=True)
            if isinstance(value := values.get(name), int | float)
        ]
        if numbers:
            kept |= {min(numbers)[1], max(numbers)[1]}
    return kept


def _of_ids(session: Session, ids: Sequence[int]) -> list[Metric]:
    found: list[Metric] = []
    for start in range(0, len(ids), 1000):
        part = select(Metric).where(Metric.id.in_(ids[start : start + 1000])).order_by(Metric.id)
        found += session.execute(part).scalars()
    return found
