"""Secrets: their names and times, never their values."""

from pydantic import BaseModel, ConfigDict, Field

from api.pagination import Page
from api.schemas.common import Time, rfc3339
from store import tables
from store.secrets import LONGEST, SHORTEST


class SecretRequest(BaseModel):
    """The value of a secret."""

    model_config = ConfigDict(extra="forbid", strict=True)

    value: str = Field(
        min_length=SHORTEST,
        max_length=LONGEST,
        pattern=r"^[\x20-\x7e]*$",
        description="Plain ASCII, one line",
    )


class Secret(BaseModel):
    """A secret without its value."""

    name: str
    project: str
    created_at: Time
    updated_at: Time

    @classmethod
    def of(cls, row: tables.Secret) -> "Secret":
        return cls(
            name=row.name,
            project=row.project,
            created_at=rfc3339(row.created_at),
            updated_at=rfc3339(row.updated_at),
        )


class SecretPage(Page[Secret]):
    """Secrets by name."""
