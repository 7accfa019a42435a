"""Answers other than success, as RFC 9457 problem details.

Every 4xx and 5xx answer of the service has the one shape of `api.schemas.problems.Problem`. `type` names the
kind of problem (`urn:regatta:problem:<kind>`) and is what a program should switch on; `detail` is for people.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from api.telemetry.requests import request_id
from trainer.config.problems import Problem
from trainer.config.values import printable

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:regatta:problem:"

TITLES: dict[str, tuple[int, str]] = {
    "malformed-json": (400, "The body is not JSON"),
    "malformed-body": (400, "The body cannot be read"),
    "not-supported": (400, "The service cannot do this"),
    "unauthenticated": (401, "The server does not know who asks"),
    "insufficient-scope": (403, "The key does not allow this"),
    "cross-site": (403, "Requests from other web sites are refused"),
    "not-found": (404, "There is nothing at this address"),
    "method-not-allowed": (405, "This address does not take that method"),
    "not-acceptable": (406, "None of the accepted media types is on offer"),
    "timeout": (408, "The body did not arrive in time"),
    "conflict": (409, "The state of things does not allow this"),
    "no-secret-key": (409, "The server cannot keep or read secrets"),
    "exists": (409, "There is one of that name already"),
    "idempotency-conflict": (409, "The Idempotency-Key was used with another body"),
    "body-too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body has the wrong media type"),
    "range-not-satisfiable": (416, "The file has no such range"),
    "misdirected": (421, "This server does not answer for that host name"),
    "invalid": (422, "The request has problems"),
    "quota-exceeded": (429, "The project may have no more of this"),
    "too-many-requests": (429, "This client asks too much at a time"),
    "internal": (500, "The service failed"),
    "unavailable": (503, "A part of the service is away"),
    "storage-full": (507, "There is no room left"),
}


class ApiError(Exception):
    """Raised anywhere below an endpoint to answer with problem details.

    Attributes:
        kind: a key of `TITLES`; it fixes the status code and the title.
        detail: one sentence for people about this very case.
        errors: what is wrong with the input, each with its place, message and remedy.
        members: further members of the document, such as `incident`.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.members = members

    @property
    def status(self) -> int:
        return TITLES[self.kind][0]

    def document(self) -> dict[str, Any]:
        status, title = TITLES[self.kind]
        document = {"type": TYPE_PREFIX + self.kind, "title": title, "status": status, "detail": self.detail}
        if self.errors:
            document["errors"] = [problem.as_dict() for problem in self.errors]
        return document | self.members


class ProblemResponse(JSONResponse):
    media_type = MEDIA_TYPE

    def __init__(self, problem: ApiError) -> None:
        document = problem.document()
        if (known := request_id()) is not None:
            document["request_id"] = known
        super().__init__(document, status_code=problem.status, headers=problem.headers)
        self.problem = problem

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.problem.headers.get("Connection") == "close":
            await self._answer_before_the_body_ends(receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _answer_before_the_body_ends(self, receive: Receive, send: Send) -> None:
        """Answers at once, then discards some of what the client still sends.

        Closing a socket that holds unread bytes resets the connection, and the client would lose the answer.
        """
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await _discard_body(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


DISCARD_BYTES = 16 * 1024 * 1024
DISCARD_SECONDS = 3.0


async def _discard_body(receive: Receive) -> None:
    discarded = 0
    with anyio.move_on_after(DISCARD_SECONDS):
        while discarded < DISCARD_BYTES:
            message = await receive()
            discarded += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body", False):
                return


MOST_PROBLEMS = 100
"""How many problems one answer tells of."""
LONGEST_NAME = 80
"""Characters of a name that an answer shows."""


def invalid(errors: Sequence[Problem]) -> ApiError:
    """422 with everything that is wrong, said once; of more than `MOST_PROBLEMS` the first ones."""
    shown = [_sendable(error) for error in errors[:MOST_PROBLEMS]]
    count = "1 problem" if len(errors) == 1 else f"{len(errors)} problems"
    if len(errors) > MOST_PROBLEMS:
        count = f"More than {MOST_PROBLEMS} problems, of which the first {MOST_PROBLEMS} are shown"
    where = ".".join(str(part) for part in shown[0].loc)
    return ApiError("invalid", f"{count}; the first is at {where}: {shown[0].msg}", errors=shown)


def _sendable(problem: Problem) -> Problem:
    """The problem in a form that can be encoded, whatever text of the client or of a file is in it."""
    loc = tuple(_name(part) if isinstance(part, str) else part for part in problem.loc)
    return Problem(loc, _encodable(problem.msg), _encodable(problem.hint))


def _name(part: str) -> str:
    name = printable(part[: LONGEST_NAME + 1])
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def sentence(error: Exception) -> str:
    """What the store says, as a sentence of its own."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def not_found(what: str, name: str, listed_at: str) -> ApiError:
    return ApiError("not-found", f"There is no {what} {name!r}; GET {listed_at} lists what there is.")
