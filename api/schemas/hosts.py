"""Hosts and what runs where."""

from collections.abc import Container, Iterable
from typing import Any

from pydantic import BaseModel, Field

from api.pagination import Page
from api.schemas.common import Time, rfc3339
from store import tables


class RunningPart(BaseModel):
    """The part of a job's attempt that a host runs."""

    job_id: str | None = Field(description="null for a job of another project")
    attempt: int
    rank: int
    devices: list[int]


class Host(BaseModel):
    """A machine with devices."""

    name: str
    device: str = Field(description="Kind of its devices")
    devices: list[dict[str, Any]]
    labels: dict[str, Any]
    info: dict[str, Any]
    accepts_jobs: bool = Field(description="Whether its worker takes jobs")
    cordoned: bool = Field(description="Whether an administrator keeps new jobs away")
    draining: bool = Field(description="Whether what runs there is to stop and go on elsewhere")
    cordon_reason: str
    alive: bool = Field(description="Whether its last heartbeat is fresh enough to get jobs")
    registered_at: Time
    heartbeat_at: Time
    running: list[RunningPart]

    @classmethod
    def of(
        cls, row: tables.Host, alive: bool, parts: Iterable[tables.AttemptNode], visible: Container[str]
    ) -> "Host":
        """The host with the parts of attempts that it runs.

        Args:
            visible: the jobs whose ids the client may see.
        """
        return cls(
            name=row.name,
            device=row.device,
            devices=row.devices,
            labels=row.labels,
            info=row.info,
            accepts_jobs=row.accepts_jobs,
            cordoned=row.cordoned,
            draining=row.draining,
            cordon_reason=row.cordon_reason,
            alive=alive,
            registered_at=rfc3339(row.registered_at),
            heartbeat_at=rfc3339(row.heartbeat_at),
            running=[
                RunningPart(
                    job_id=part.job_id if part.job_id in visible else None,
                    attempt=part.attempt,
                    rank=part.rank,
                    devices=part.devices,
                )
                for part in parts
            ],
        )


class HostPage(Page[Host]):
    """Hosts by name."""
