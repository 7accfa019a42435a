"""Gauges of the service as it is: read from the database, and from this process."""

import logging
import threading
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.pool import QueuePool

from api.feeds import Hub
from api.telemetry.jobs import JobMetrics
from store.database import Database
from store.gauges import Gauges, read_gauges

KEEP_S = 5.0
"""Scrapes within this time share one look at the database."""

logger = logging.getLogger(__name__)


class StateCollector(Collector):
    """What a scrape asks for. Without the database only what this process knows is told."""

    def __init__(self, registry: CollectorRegistry, database: Database, hub: Hub) -> None:
        self._database = database
        self._hub = hub
        self._jobs = JobMetrics(registry)
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._seconds = 0.0
        self._gauges: Gauges | None = None
        registry.register(self)

    def describe(self) -> list[GaugeMetricFamily]:
        """Names cannot clash with those of other collectors; nothing is read to find out."""
        return []

    def refresh(self) -> None:
        """Look at the database, unless that has just been done."""
        with self._lock:
            begin = time.monotonic()
            if begin < self._read_at + KEEP_S:
                return
            try:
                self._jobs.catch_up(self._database)
                with self._database.reading() as session:
                    self._gauges = read_gauges(session)
            except Exception as error:
                logger.warning("the database does not tell its numbers: %s", type(error).__name__)
                self._gauges = None
            self._read_at = time.monotonic()
            self._seconds = self._read_at - begin

    def collect(self) -> Iterator[GaugeMetricFamily]:
        gauges = self._gauges
        yield _one("regatta_database_up", "Whether the database answered the last look", gauges is not None)
        yield _one("regatta_database_look_seconds", "Time that the last look took", self._seconds)
        yield from self._pool()
        yield self._followers()
        if gauges is not None:
            yield from _families(gauges)

    def _pool(self) -> Iterator[GaugeMetricFamily]:
        pool = self._database.engine.pool
        if isinstance(pool, QueuePool):
            family = GaugeMetricFamily(
                "regatta_database_connections", "Connections of this process", labels=("state",)
            )
            family.add_metric(("used",), pool.checkedout())
            family.add_metric(("idle",), pool.checkedin())
            yield family

    def _followers(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            "regatta_stream_followers", "Open event streams of this process", labels=("history",)
        )
        counts = dict.fromkeys(("events", "logs", "metrics"), 0) | self._hub.followers()
        for history, followers in counts.items():
            family.add_metric((history,), followers)
        return family


def _families(gauges: Gauges) -> Iterator[GaugeMetricFamily]:
    labels = ("project", "priority", "device")
    jobs = GaugeMetricFamily("regatta_queue_jobs", "Jobs that wait for devices", labels=labels)
    oldest = GaugeMetricFamily("regatta_queue_oldest_seconds", "Wait of the oldest of them", labels=labels)
    for waiting in gauges.waiting:
        jobs.add_metric(waiting[:3], waiting.jobs)
        oldest.add_metric(waiting[:3], waiting.oldest_s)
    yield from (jobs, oldest)

    busy = GaugeMetricFamily(
        "regatta_active_jobs", "Jobs that hosts work on", labels=("project", "status", "device")
    )
    for row in gauges.busy:
        busy.add_metric(row[:3], row.jobs)
    yield busy
    yield from _hosts(gauges)

    yield _one("regatta_outbox_messages", "Placements that hosts have not taken yet", gauges.outbox)
    yield _one("regatta_outbox_oldest_seconds", "Age of the oldest of them", gauges.outbox_oldest_s)
    yield _one("regatta_webhooks_waiting", "Announcements that have not arrived yet", gauges.webhooks)
    yield _one("regatta_scheduler_up", "Whether a scheduler is at work", gauges.scheduler_up)


def _hosts(gauges: Gauges) -> Iterator[GaugeMetricFamily]:
    devices = GaugeMetricFamily(
        "regatta_host_devices", "Devices of hosts, used and idle", labels=("host", "kind", "state")
    )
    age = GaugeMetricFamily(
        "regatta_host_heartbeat_age_seconds", "Since a host's last word", labels=("host",)
    )
    accepts = GaugeMetricFamily(
        "regatta_host_accepts_jobs", "Whether a host takes new jobs", labels=("host",)
    )
    excluded = GaugeMetricFamily(
        "regatta_host_excluded", "Whether a host gets no jobs because of what failed there", labels=("host",)
    )
    for host in gauges.hosts:
        devices.add_metric((host.name, host.device, "used"), host.used)
        devices.add_metric((host.name, host.device, "idle"), max(0, host.devices - host.used))
        age.add_metric((host.name,), host.heartbeat_age_s)
        accepts.add_metric((host.name,), float(host.accepts_jobs and not host.excluded))
        excluded.add_metric((host.name,), float(host.excluded))
    return iter((devices, age, accepts, excluded))


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))
