"""Projects and their limits."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.pagination import Page
from api.schemas.common import Time, rfc3339
from store import tables

MOST = 2**31 - 1
ProjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Limit = Annotated[int | None, Field(ge=0, le=MOST)]


class LimitsRequest(BaseModel):
    """The limits to change. null lifts one; those that are left out stay as they are."""

    model_config = ConfigDict(extra="forbid", strict=True)

    most_queued: Limit = Field(None, description="Jobs that wait at the same time; more are refused")
    most_running: Limit = Field(None, description="Jobs that run at the same time; more wait")
    most_devices: Limit = Field(None, description="Devices in use at the same time; what wants more waits")

    def given(self) -> dict[str, int | None]:
        """The limits that the client has named."""
        return self.model_dump(include=self.model_fields_set & LimitsRequest.model_fields.keys())


class ProjectRequest(LimitsRequest):
    """A new project."""

    name: ProjectName = Field(description="Lower-case letters, digits and . _ -")


class Project(BaseModel):
    """A project, whose jobs and data are kept apart from those of others. A limit of null is none."""

    name: str
    most_queued: int | None
    most_running: int | None
    most_devices: int | None
    created_at: Time

    @classmethod
    def of(cls, row: tables.Project) -> "Project":
        return cls(
            name=row.name,
            most_queued=row.most_queued,
            most_running=row.most_running,
            most_devices=row.most_devices,
            created_at=rfc3339(row.created_at),
        )


class ProjectPage(Page[Project]):
    """Projects by name."""
