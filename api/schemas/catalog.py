"""The argument files that ship."""

from typing import Any

from pydantic import BaseModel, Field

from api.pagination import Page
from api.schemas.common import Links
from api.schemas.problems import ProblemItem


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
