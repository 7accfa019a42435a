"""Items of a job's histories: events, metrics, log lines."""

from typing import Any

from pydantic import BaseModel, Field

from api.pagination import Page
from api.schemas.common import Time, rfc3339
from store import logs, tables


class Event(BaseModel):
    """Something that happened to a job."""

    id: int = Field(description="Position in the history; what `after` and Last-Event-ID take")
    project: str | None = Field(description="Whose; null: of the whole service")
    job_id: str | None = Field(description="null for what concerns no single job, such as keys")
    time: Time
    type: str = Field(
        description="`status` for a change of status, `changed` for PATCH, else what the trainer reported",
        examples=["status"],
    )
    attempt: int
    actor: str = Field(description="Who did it: a key, `local`, `scheduler` or `host <name>`")
    from_status: str | None
    to_status: str | None
    reason: str | None
    message: str
    data: dict[str, Any]

    @classmethod
    def of(cls, row: tables.JobEvent) -> "Event":
        return cls(
            id=row.id,
            project=row.project,
            job_id=row.job_id,
            time=rfc3339(row.time),
            type=row.type,
            attempt=row.attempt,
            actor=row.actor,
            from_status=row.from_status,
            to_status=row.to_status,
            reason=row.reason,
            message=row.message,
            data=row.data,
        )


class EventPage(Page[Event]):
    """Events, oldest first."""


class Metric(BaseModel):
    """The numbers of one step. When a later attempt repeats a step, they are replaced, under a new id."""

    id: int = Field(description="Position in the history; what `after` and Last-Event-ID take")
    time: Time
    kind: str = Field(description="`train` or `eval`")
    step: int
    attempt: int
    values: dict[str, Any] = Field(description="By name; null where the number was not finite")

    @classmethod
    def of(cls, row: tables.Metric) -> "Metric":
        return cls(
            id=row.id,
            time=rfc3339(row.time),
            kind=row.kind,
            step=row.step,
            attempt=row.attempt,
            values=row.values,
        )


class MetricPage(Page[Metric]):
    """Metrics, oldest first."""

    thinned: bool = Field(False, description="Whether `points` left some out")


class LogLine(BaseModel):
    """One line that a rank of the trainer wrote."""

    cursor: str = Field(
        description="Position in the history; what `after` and Last-Event-ID take", examples=["1-42"]
    )
    time: Time
    attempt: int
    rank: int
    line: str

    @classmethod
    def of(cls, line: logs.LogLine) -> "LogLine":
        return cls(
            cursor=str(line.position),
            time=rfc3339(line.t),
            attempt=line.attempt,
            rank=line.rank,
            line=line.line,
        )


class LogPage(Page[LogLine]):
    """Log lines, oldest first."""
