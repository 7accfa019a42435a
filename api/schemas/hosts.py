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
    excluded: bool = Field(description="Whether it gets no jobs because of attempts that failed there")
    exclusion_reason: str = Field(description="What has failed there; empty when nothing has excluded it")
    excluded_until: Time | None = Field(description="null: until it is uncordoned, if it is excluded")
    alive: bool = Field(description="Whether its last heartbeat is fresh enough to get jobs")
    registered_at: Time
    heartbeat_at: Time
    running: list[RunningPart]

    @classmethod
    def of(
        cls,
        row: tables.Host,
        parts: Iterable[tables.AttemptNode],
        visible: Container[str],
        *,
        alive: bool,
        excluded: bool,
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
            excluded=excluded,
            exclusion_reason=row.exclusion_reason if excluded else "",
            excluded_until=rfc3339(row.excluded_until) if excluded and row.excluded_until else None,
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
