"""What a call can end with instead of an answer. Every one is a `RegattaError`."""

from collections.abc import Mapping
from typing import Any

import httpx

from regatta_client.models import Job, ProblemItem

PASSING = frozenset({429, 500, 502, 503, 504})
"""Statuses of answers that may be others a moment later."""


class RegattaError(Exception):
    """Anything that went wrong with a server, or with what it was asked to do."""


class ServerAwayError(RegattaError):
    """No answer from the server, or one that broke off."""

    def __init__(self, url: str, cause: object) -> None:
        super().__init__(f"no Regatta server answers at {url} ({cause})")
        self.url = url
        self.cause = cause


class ApiError(RegattaError):
    """An answer that is not a success.

    Attributes:
        status: the status of HTTP.
        problem: the problem details (RFC 9457) of the answer.
        problems: everything that is wrong with the request, each with its place, message and remedy.
        retry_after_s: how long the server asks to wait.
    """

    def __init__(
        self, status: int, problem: Mapping[str, Any], *, retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.problem = dict(problem)
        errors = problem.get("errors")
        entries = errors if isinstance(errors, list) else []
        self.problems = tuple(
            ProblemItem.model_validate({"loc": [], "msg": "", "hint": ""} | dict(entry))
            for entry in entries
            if isinstance(entry, Mapping)
        )
        self.retry_after_s = retry_after_s
        title, detail = (str(problem.get(name) or "") for name in ("title", "detail"))
        super().__init__(": ".join(part for part in (title, detail) if part) or f"HTTP {status}")

    @property
    def kind(self) -> str:
        """The last word of the problem's type, such as `not-found`; what a program should switch on."""
        return str(self.problem.get("type", "")).rpartition(":")[2]


class InvalidError(ApiError):
    """The request is wrong (400, 413, 415, 422); `problems` has each place."""


class UnauthenticatedError(ApiError):
    """The server does not know the key (401)."""


class ForbiddenError(ApiError):
    """The key does not allow the call (403)."""


class NotFoundError(ApiError):
    """There is no such thing (404)."""


class ConflictError(ApiError):
    """The state of things does not allow the call (409)."""


class TooManyRequestsError(ApiError):
    """A limit of the client or its project is reached (429)."""


class ServerFailedError(ApiError):
    """The server could not do it (5xx)."""


class JobDidNotSucceedError(RegattaError):
    """A job that was waited for has failed or was cancelled; `job` is its last state."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"job {job.id} {job.status} ({job.reason}): {job.message}")
        self.job = job


class TookTooLongError(RegattaError):
    """A job had not ended when it was not to be waited for any longer; `job` is its last state."""

    def __init__(self, job: Job, waited_s: float) -> None:
        super().__init__(f"job {job.id} is {job.status} after {waited_s:g} s")
        self.job = job


class DamagedFileError(RegattaError):
    """A file that arrived is not the one that the server has listed."""


_OF_STATUS = {
    400: InvalidError,
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: InvalidError,
    415: InvalidError,
    422: InvalidError,
    429: TooManyRequestsError,
}


def refusal(response: httpx.Response) -> ApiError:
    """The error that an answer is; its body has been read."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        kind = response.headers.get("content-type", "no content type")
        title = f"HTTP {response.status_code} from {response.url}"
        problem = {"title": title, "detail": f"the answer is not JSON ({kind})"}
    status = response.status_code
    default = ServerFailedError if status >= 500 else ApiError
    given = response.headers.get("retry-after", "")
    retry_after_s = float(given) if given.isascii() and given.isdigit() else None
    return _OF_STATUS.get(status, default)(status, problem, retry_after_s=retry_after_s)


def is_passing(error: RegattaError) -> bool:
    """Whether the same call may well succeed a moment later."""
    return isinstance(error, ServerAwayError) or (isinstance(error, ApiError) and error.status in PASSING)
