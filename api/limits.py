"""How much one client may ask of this process: requests per second, and event streams at a time.

A client is a key, or without one an address. Each process counts for itself.
"""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from api.authentication import is_open
from api.principal import LOCAL
from api.problems import ApiError, ProblemResponse
from store.settings import Settings

MOST_CLIENTS = 10_000
"""Buckets that are remembered; the client that was quiet longest is forgotten first."""


class Buckets:
    """A token bucket for each client: full at first, refilled at a steady rate, one token per request."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take a token: 0, or the seconds until there will be one."""
        now = self._clock()
        tokens, filled_at = self._buckets.pop(client, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - filled_at) * self._rate)
        wait = max(0.0, (1 - tokens) / self._rate)
        self._buckets[client] = (tokens if wait else tokens - 1, now)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return wait


class StreamLimit:
    """Event streams that each client has open."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def opened(self, scope: Scope) -> Iterator[None]:
        """Count one stream for the time of the block. Raises: ApiError (429)."""
        client = client_of(scope)
        if self._open[client] >= self._most:
            raise too_many(
                f"This client has {self._most} event streams open, the most at a time "
                "(REGATTA_MAX_STREAMS_PER_CLIENT). Close one, or read the history page by page.",
                5.0,
            )
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]


class RateLimit:
    """ASGI middleware behind the authentication: answers 429 to a client that asks too much."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        rate = settings.requests_per_s
        self._buckets = Buckets(rate, settings.requests_burst) if rate else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._buckets is None or is_open(scope["method"], scope["path"]):
            await self.app(scope, receive, send)
            return
        wait = self._buckets.take(client_of(scope))
        if not wait:
            await self.app(scope, receive, send)
            return
        detail = f"This client asks more often than it may (REGATTA_REQUESTS_PER_S); again in {wait:.2f} s."
        await ProblemResponse(too_many(detail, wait))(scope, receive, send)


def client_of(scope: Scope) -> str:
    """Who asks: the key's project and name, or the address of a client that shows none."""
    principal: Any = scope.get("state", {}).get("principal", LOCAL)
    if principal is not LOCAL:
        return f"{principal.project}/{principal.actor}"
    client = scope.get("client")
    return client[0] if client else ""


def too_many(detail: str, wait_s: float) -> ApiError:
    return ApiError("too-many-requests", detail, headers={"Retry-After": str(max(1, math.ceil(wait_s)))})
