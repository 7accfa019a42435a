"""API keys."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.pagination import Page
from api.schemas.common import Time, rfc3339, rfc3339_or_none
from api.schemas.projects import ProjectName
from store import tables

LONGEST_LIFE_S = 10 * 365 * 86400
KeyName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")]


class KeyRequest(BaseModel):
    """A new key."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: KeyName = Field(description="Who or what uses it; histories show it")
    project: ProjectName | None = Field(None, description="Whose key it is; default: the caller's project")
    scopes: list[Literal["read", "write", "admin"]] = Field(
        default=["read", "write"],
        min_length=1,
        max_length=3,
        description="`admin` includes the others, and all projects",
    )
    expires_in_s: float | None = Field(
        None, gt=0, le=LONGEST_LIFE_S, description="Seconds after which it is refused; default: never"
    )


class Key(BaseModel):
    """A key without its text."""

    id: str
    name: str
    project: str
    prefix: str = Field(description="The part of the key's text that is no secret: rgt_<prefix>_…")
    scopes: list[str]
    created_at: Time
    created_by: str
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None = Field(description="To the minute")

    @classmethod
    def of(cls, row: tables.ApiKey) -> "Key":
        return cls(**_members(row))


class NewKey(Key):
    """A key with its text, which is shown this once."""

    key: str = Field(description="What to send as Authorization: Bearer <key>")

    @classmethod
    def made(cls, row: tables.ApiKey, text: str) -> "NewKey":
        return cls(**_members(row), key=text)


class KeyPage(Page[Key]):
    """Keys, newest first, the revoked ones too."""


def _members(row: tables.ApiKey) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "project": row.project,
        "prefix": row.prefix,
        "scopes": row.scopes,
        "created_at": rfc3339(row.created_at),
        "created_by": row.created_by,
        "expires_at": rfc3339_or_none(row.expires_at),
        "revoked_at": rfc3339_or_none(row.revoked_at),
        "last_used_at": rfc3339_or_none(row.last_used_at),
    }
