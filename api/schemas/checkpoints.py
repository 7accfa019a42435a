"""Checkpoints and results: what they hold and where it is."""

from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, Field

from api.pagination import Page
from api.schemas.common import Links, Time, rfc3339
from store import tables


class File(BaseModel):
    path: str = Field(description="Relative, with forward slashes")
    bytes: int
    sha256: str
    url: str


class Checkpoint(BaseModel):
    """Weights that a job has published, complete and unchanging."""

    name: str
    job_id: str
    step: int | None
    attempt: int
    best: bool
    metrics: dict[str, Any]
    bytes: int = Field(description="Sum over the files")
    files: list[File]
    created_at: Time
    links: Links

    @classmethod
    def of(cls, row: tables.Checkpoint) -> "Checkpoint":
        job = f"/jobs/{row.job_id}"
        own = f"{job}/result" if row.is_result else f"{job}/checkpoints/{quote(row.name, safe='')}"
        return cls(
            name=row.name,
            job_id=row.job_id,
            step=row.step,
            attempt=row.attempt,
            best=row.best,
            metrics=row.metrics,
            bytes=row.bytes,
            files=[File(**entry, url=f"{own}/files/{quote(entry['path'])}") for entry in row.files],
            created_at=rfc3339(row.created_at),
            links={"self": own, "archive": f"{own}/archive", "job": job},
        )


class CheckpointPage(Page[Checkpoint]):
    """Checkpoints, by step."""
