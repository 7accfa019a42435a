"""The one shape of every 4xx and 5xx answer (RFC 9457), and how it is documented."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from api.problems import MEDIA_TYPE, TITLES, TYPE_PREFIX
from trainer.config import problems


class ProblemItem(BaseModel):
    """One thing that is wrong with the request."""

    loc: list[str | int] = Field(
        description="Where: `body`, `query`, `path` or `header`, then the names down to the value",
        examples=[["body", "config", "learning_rate"]],
    )
    msg: str = Field(description="What came and what was expected")
    hint: str = Field(description="What to do; may be empty")

    @classmethod
    def of(cls, problem: problems.Problem) -> "ProblemItem":
        return cls(loc=list(problem.loc), msg=problem.msg, hint=problem.hint)


class Problem(BaseModel):
    """Problem details of RFC 9457."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="What kind of problem this is; switch on this", pattern=f"^{TYPE_PREFIX}")
    title: str = Field(description="The kind of problem in words")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What happened in this case")
    errors: list[ProblemItem] | None = Field(None, description="All that is wrong with the input (422)")
    incident: str | None = Field(None, description="Names this failure in the server's log (500)")
    request_id: str | None = Field(None, description="The X-Request-Id of the answer; the log has it too")


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of the given problem statuses, for a route's `responses`."""
    return {status: _answer(status) for status in statuses}


def _answer(status: int) -> dict[str, Any]:
    kinds = [f"`{kind}`: {title}" for kind, (code, title) in TITLES.items() if code == status]
    return {
        "description": "; ".join(kinds),
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
