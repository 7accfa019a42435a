"""Counts and times requests, by the route's template."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import Scope

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    """The metrics of requests; one instance per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "regatta_http_requests",
            "Requests that were answered",
            ("method", "route", "status"),
            registry=registry,
        )
        self.duration = Histogram(
            "regatta_http_request_duration_seconds",
            "Time until an answer began",
            ("method", "route"),
            buckets=BUCKETS,
            registry=registry,
        )
        self.open = Gauge(
            "regatta_http_requests_in_progress", "Requests that are being answered", registry=registry
        )

    def observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one request whose answer began after so many seconds."""
        method, route = method_of(scope), route_of(scope)
        self.requests.labels(method, route, str(status)).inc()
        self.duration.labels(method, route).observe(seconds)


def method_of(scope: Scope) -> str:
    """The method, if it is a usual one: anybody may send any word."""
    return scope["method"] if scope["method"] in METHODS else "other"


def route_of(scope: Scope) -> str:
    """The template of the route that answered; there are only so many of them."""
    return getattr(scope.get("route"), "path", None) or "none"
