"""What has happened to a job as OpenAI's API lists it: events and metrics in one list, newest first."""

import re
from typing import Any

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session

from api.openai_face.files import unknown_after
from api.openai_face.schemas import JobEvent, ListOf
from store.metrics import TRAIN
from store.reasons import REASONS, Fault, Reason
from store.states import Status
from store.tables import Job, Metric
from store.tables import JobEvent as EventRow

_ID = re.compile(r"ftevent-(?P<kind>[em])(?P<id>[0-9]{1,18})")
_TABLES: dict[str, type[EventRow] | type[Metric]] = {"m": Metric, "e": EventRow}
"""By the letter of their ids, in the order of rows of the same time."""
LEVELS = {"warning": "warn", "error": "error"}
NAMES = {
    "loss": "train_loss",
    "eval_loss": "full_valid_loss",
    "eval_accuracy": "full_valid_mean_token_accuracy",
}
"""What metrics are called there; the others keep their names."""


def list_events(session: Session, job: Job, after: str | None, limit: int) -> ListOf[JobEvent]:
    """A part of the list, behind the event of id `after`. Raises ApiError (422) for an unknown one."""
    last = None if after is None else _row(session, job, after)
    found: list[tuple[float, int, int, JobEvent]] = []
    for rank, kind in enumerate(_TABLES):
        table = _TABLES[kind]
        query: Select[Any] = select(table).where(table.job_id == job.id)
        if last is not None:
            earlier = table.time < last[0]
            at_once = table.time == last[0]
            if rank < last[1]:
                query = query.where(or_(earlier, at_once))
            elif rank == last[1]:
                query = query.where(or_(earlier, and_(at_once, table.id < last[2])))
            else:
                query = query.where(earlier)
        rows = session.execute(query.order_by(table.time.desc(), table.id.desc()).limit(limit + 1)).scalars()
        shown = _of_event if kind == "e" else _of_metric
        found += [(row.time, rank, row.id, shown(row)) for row in rows]
    found.sort(key=lambda each: each[:3], reverse=True)
    return ListOf[JobEvent](data=[each[3] for each in found[:limit]], has_more=len(found) > limit)


def _row(session: Session, job: Job, after: str) -> tuple[float, int, int]:
    """The place of an event in the list."""
    match = _ID.fullmatch(after)
    row = session.get(_TABLES[match["kind"]], int(match["id"])) if match else None
    if match is None or row is None or row.job_id != job.id:
        raise unknown_after(after, f"/v1/fine_tuning/jobs/ftjob-{job.id}/events")
    return row.time, list(_TABLES).index(match["kind"]), row.id


def _of_event(row: EventRow) -> JobEvent:
    level, message = LEVELS.get(row.type, "info"), row.message
    if row.reason:
        known = REASONS[Reason(row.reason)]
        message = message or known.meaning
        if row.to_status == Status.failed:
            level = "error"
        elif known.fault is not None and known.fault is not Fault.nobody:
            level = "warn"
    data = {"type": row.type, "from_status": row.from_status, "to_status": row.to_status} | row.data
    return JobEvent.model_validate(
        {
            "id": f"ftevent-e{row.id}",
            "created_at": int(row.time),
            "level": level,
            "message": message or row.type,
            "type": "message",
            "data": data,
        }
    )


def _of_metric(row: Metric) -> JobEvent:
    values = {NAMES.get(name, name): value for name, value in row.values.items()}
    name = "train_loss" if row.kind == TRAIN else "full_valid_loss"
    loss = values.get(name)
    words = "training loss" if row.kind == TRAIN else "full validation loss"
    return JobEvent.model_validate(
        {
            "id": f"ftevent-m{row.id}",
            "created_at": int(row.time),
            "level": "info",
            "message": f"Step {row.step}: {words}={'none' if loss is None else f'{loss:.4g}'}",
            "type": "metrics",
            "data": {"step": row.step} | values,
        }
    )
