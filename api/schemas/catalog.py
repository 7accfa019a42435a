"""The argument files that ship, and the reasons that a job may have for its status."""

from typing import Any

from pydantic import BaseModel, Field

from api.pagination import Page
from api.schemas.common import Links
from api.schemas.problems import ProblemItem
from store.reasons import REASONS, Fault, Reason, Retry


class PresetSummary(BaseModel):
    family: str
    name: str
    task: str
    available: bool = Field(description="Whether this version can run the task")
    links: Links


class PresetPage(Page[PresetSummary]):
    """The argument files that ship with the service, by family and name."""


class Preset(PresetSummary):
    config: dict[str, Any] = Field(description="The argument file as it ships")
    devices: int = Field(description="The fewest that its parallel degrees need; any multiple will do")
    problems: list[ProblemItem] = Field(
        description="What this version refuses of it: to be changed before it is sent; paths aside"
    )


class ReasonShown(BaseModel):
    """Why a job may have the status it has."""

    reason: Reason
    meaning: str
    fault: Fault | None = Field(description="Who can do something about it; null where nothing is wrong")
    retry: Retry = Field(
        description="What the service does by itself: nothing, a try that `max_retries` counts, one at no "
        "charge as long as there are not too many in a row, or one always"
    )
    retry_helps: bool = Field(description="Whether the same job may succeed when it is tried again as it is")
    remedy: str = Field(description="What to do about it")

    @classmethod
    def of(cls, reason: Reason) -> "ReasonShown":
        row = REASONS[reason]
        return cls(
            reason=reason,
            meaning=row.meaning,
            fault=row.fault,
            retry=row.retry,
            retry_helps=row.retry_helps,
            remedy=row.remedy,
        )


class ReasonPage(Page[ReasonShown]):
    """All reasons, in the order of a job's life."""
