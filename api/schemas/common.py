"""Parts that many documents share."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, UTC")]
Links = Annotated[dict[str, str], Field(description="Addresses of what belongs to this, by name")]


def rfc3339(seconds: float) -> str:
    """Unix seconds as RFC 3339 UTC with milliseconds: `2026-05-04T10:20:30.250Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rfc3339_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(seconds)
