"""What surrounds every request: its id, its time, its line in the access log."""

import logging
import re
import time
from contextvars import ContextVar
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.telemetry.http import HttpMetrics, route_of
from store.logformat import log_context

HEADER = "X-Request-Id"
_SAFE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

access_log = logging.getLogger("regatta.access")


def request_id() -> str | None:
    """The id of the request that is being answered."""
    return _request_id.get()


class Observed:
    """ASGI middleware around all others. A client's request id is taken over when it is short and plain."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, log_requests: bool) -> None:
        self.app = app
        self._metrics = metrics
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request = given if _SAFE.fullmatch(given) else uuid4().hex
        token = _request_id.set(request)
        begin = time.perf_counter()
        status, answered = 0, 0.0

        async def noting_the_answer(message: Message) -> None:
            nonlocal status, answered
            if message["type"] == "http.response.start":
                status, answered = message["status"], time.perf_counter() - begin
                MutableHeaders(scope=message)[HEADER] = request
            await send(message)

        try:
            with log_context(request_id=request), self._metrics.open.track_inprogress():
                try:
                    await self.app(scope, receive, noting_the_answer)
                finally:
                    if status:  # else the client left before there was an answer
                        self._metrics.observe(scope, status, answered)
                    if self._log_requests:
                        self._log(scope, status, time.perf_counter() - begin)
        finally:
            _request_id.reset(token)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        client = scope.get("client")
        fields = {
            "method": scope["method"],
            "path": scope["path"],
            "route": route_of(scope),
            "status": status,
            "duration_s": round(seconds, 4),
            "client": client[0] if client else None,
        }
        if job_id := scope.get("path_params", {}).get("job_id"):
            fields["job_id"] = job_id
        access_log.info("%s %s %d", scope["method"], scope["path"], status, extra=fields)
