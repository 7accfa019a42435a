"""Jobs as they are shown: plain rows instead of objects, long JSON members as the text in the database.

Whoever only shows a job need not take its configs apart to put them together again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Text,
    bindparam,
    cast,
    exists,
    insert,
    select,
    tuple_,
)
from sqlalchemy.orm import Session
from sqlalchemy.sql.schema import ScalarElementColumnDefault

from store.pages import Page, cut_page, decode_cursor
from store.tables import Base, Job, JobLabel, Webhook

MAX_PAGE = 1000

LONG = (Job.config_given, Job.config_resolved, Job.warnings, Job.estimate, Job.evidence)
"""What a summary leaves out."""

_SHORT = [column for column in Job.__table__.columns if column.key not in {long.key for long in LONG}]
_WEBHOOK = [
    Webhook.url.label("webhook_url"),
    Webhook.events.label("webhook_events"),
    Webhook.disabled_at.label("webhook_disabled_at"),
]
_TEXTS = [cast(column, Text).label(column.key) for column in LONG]
_SUMMARY = select(*_SHORT)
_FULL = select(*_SHORT, *_TEXTS, *_WEBHOOK).outerjoin(Webhook, Webhook.job_id == Job.id)
_ONE = _FULL.where(Job.id == bindparam("job_id"))
_INSERT = insert(Base.metadata.tables["jobs"])
_DEFAULTS: dict[str, Any] = {
    column.key: column.default.arg if isinstance(column.default, ScalarElementColumnDefault) else None
    for column in Job.__table__.columns
} | {column.name: None for column in _WEBHOOK}
_LABELS = (
    select(JobLabel.job_id, JobLabel.key, JobLabel.value)
    .where(JobLabel.job_id.in_(bindparam("job_ids", expanding=True)))
    .order_by(JobLabel.job_id, JobLabel.key)
)


@dataclass(frozen=True)
class JobRow:
    """A job as it is shown.

    Attributes:
        columns: those of the table `jobs`, by name. Unless it is a summary, the members of `LONG` are there,
            as texts of JSON (None: null) or, in a new job, as they were given, and those that begin with
            `webhook_` tell of its webhook.
        labels: by key.
    """

    columns: Row[*tuple[Any, ...]] | SimpleNamespace
    labels: Mapping[str, str]

    @property
    def id(self) -> str:
        return self.columns.id


def find_job_row(session: Session, job_id: str) -> JobRow | None:
    """The job as it is now, in full; None when there is none of this id."""
    row = session.execute(_ONE, {"job_id": job_id}).one_or_none()
    return None if row is None else _labelled(session, [row])[0]


def insert_job_row(session: Session, columns: Mapping[str, Any]) -> JobRow:
    """Store a job without labels and webhook; what is stored now, without asking for it."""
    session.connection().execute(_INSERT, dict(columns))
    return JobRow(SimpleNamespace(**(_DEFAULTS | {"progress": {}} | dict(columns))), {})


def list_job_rows(session: Session, *, limit: int, summary: bool = False, **filters: Any) -> Page[JobRow]:
    """Jobs that match all filters, newest first; filters and errors as for `matching`."""
    query = matching(_SUMMARY if summary else _FULL, limit=limit, **filters)
    page = cut_page(session.execute(query).all(), limit)
    return Page(_labelled(session, page.items), page.next_cursor)


def matching(
    query: Select[*tuple[Any, ...]],
    *,
    limit: int,
    project: str | None = None,
    status: str | None = None,
    task: str | None = None,
    name: str | None = None,
    text: str | None = None,
    labels: Mapping[str, str] | None = None,
    cursor: str | None = None,
) -> Select[*tuple[Any, ...]]:
    """A query of jobs, cut to one page of those that match all filters, and to one more if there is one;
    newest first, and without `project` those of all projects.

    Args:
        text: a part of the name, in capitals or not, or what the id begins with.

    Raises: InvalidCursor; ValueError for a limit outside 1..1000.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"limit: got {limit}, expected 1 to {MAX_PAGE}")
    query = query.order_by(Job.created_at.desc(), Job.id.desc()).limit(limit + 1)
    wanted = ((Job.project, project), (Job.status, status), (Job.task, task), (Job.name, name))
    for column, value in wanted:
        if value is not None:
            query = query.where(column == value)
    if text is not None:
        query = query.where(
            Job.name.icontains(text, autoescape=True) | Job.id.startswith(text, autoescape=True)
        )
    for key, value in (labels or {}).items():
        query = query.where(_has_label(key, value))
    if cursor is not None:
        query = query.where(tuple_(Job.created_at, Job.id) < tuple_(*decode_cursor(cursor)))
    return query


def _labelled(session: Session, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[JobRow]:
    labels: dict[str, dict[str, str]] = {row.id: {} for row in rows}
    if rows:
        for job_id, key, value in session.execute(_LABELS, {"job_ids": list(labels)}):
            labels[job_id][key] = value
    return [JobRow(row, labels[row.id]) for row in rows]


def _has_label(key: str, value: str) -> ColumnElement[bool]:
    return exists().where(JobLabel.job_id == Job.id, JobLabel.key == key, JobLabel.value == value)
