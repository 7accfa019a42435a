"""Turns what frameworks and endpoints raise into problem details."""

import logging
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.explain import explain, records
from api.problems import ApiError, ProblemResponse, invalid, sentence
from store.errors import ArtifactError, QuotaExceeded

logger = logging.getLogger(__name__)

QUOTA_RETRY_S = "30"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def install(app: FastAPI) -> None:
    """Registers the handlers, so that no answer is left in the framework's own shape."""
    app.add_exception_handler(ApiError, _api_problem)
    app.add_exception_handler(QuotaExceeded, _quota_problem)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(RequestValidationError, _bad_parameters)


async def _api_problem(_: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return ProblemResponse(error)


async def _quota_problem(_: Request, error: Exception) -> Response:
    return ProblemResponse(
        ApiError("quota-exceeded", sentence(error), headers={"Retry-After": QUOTA_RETRY_S})
    )


async def _bad_parameters(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    return ProblemResponse(invalid([explain(record) for record in records(error)]))


async def _http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return ProblemResponse(_routing_problem(request, error))


def _routing_problem(request: Request, error: HTTPException) -> ApiError:
    path = request.url.path
    if error.status_code == 405:
        allowed = allowed_methods(request)
        detail = f"{path} takes {', '.join(allowed)}; got {request.method}."
        return ApiError("method-not-allowed", detail, headers={"Allow": ", ".join(allowed)})
    if error.status_code == 404:
        return ApiError("not-found", f"Nothing is at {path}; GET /openapi.json describes what there is.")
    raise error


def allowed_methods(request: Request) -> list[str]:
    """The methods that some route takes at the request's path."""
    routes = request.app.routes
    return [
        method
        for method in METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]


class Failures:
    """ASGI middleware: answers what nobody foresaw with an incident id that is also in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noting_the_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, noting_the_start)
        except Exception as error:
            if scope["type"] != "http":
                raise
            problem = _incident(scope, error)
            if started:
                raise
            await ProblemResponse(problem)(scope, receive, send)


def _incident(scope: Scope, error: Exception) -> ApiError:
    incident = uuid4().hex
    logger.error("incident %s: %s %r failed", incident, scope["method"], scope["path"], exc_info=error)
    if away := _away(error):
        detail = f"{away}; try again. In the log this is incident {incident}."
        return ApiError("unavailable", detail, headers={"Retry-After": "5"}, incident=incident)
    return ApiError(
        "internal", f"This is our fault; in the log it is incident {incident}.", incident=incident
    )


def _away(error: Exception) -> str | None:
    """What part of the service the error says is away; None when it is our own fault."""
    if isinstance(error, OperationalError | InterfaceError):
        return "The database does not answer"
    if isinstance(error, OSError | ArtifactError):
        return "The artifacts cannot be read or written as they should be"
    return None
