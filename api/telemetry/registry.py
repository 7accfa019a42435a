"""All metrics of one application."""

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from api.service import Service
from api.telemetry.http import HttpMetrics
from api.telemetry.state import StateCollector


class Telemetry:
    """Metrics of requests, of this process and of the service."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.http = HttpMetrics(self._registry)
        self._state = StateCollector(self._registry, service.database, service.hub)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format. May block: it looks at the database."""
        self._state.refresh()
        return generate_latest(self._registry)


MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
