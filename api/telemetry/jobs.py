"""Counters and histograms of what happens to jobs, from the events in the database."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from store import tallies
from store.database import Database
from store.states import TERMINAL, Status

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
WAIT_BUCKETS = (1.0, 5.0, 15.0, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, DAY, 3 * DAY)
RUN_BUCKETS = (10.0, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, 12 * HOUR, DAY, 3 * DAY, 7 * DAY)
MOST_BATCHES = 20
"""Of events that one look reads; the rest waits for the next one."""


class JobMetrics:
    """Counts from the moment of the first look on, as a counter of a process does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seen: int | None = None
        self._finished = Counter(
            "regatta_jobs_finished",
            "Jobs that came to an end",
            ("project", "task", "status", "reason"),
            registry=registry,
        )
        self._attempts = Counter(
            "regatta_attempts_ended",
            "Attempts that ended, by outcome: an end of the job, or queued for one more attempt",
            ("task", "outcome", "reason"),
            registry=registry,
        )
        self._waited = Histogram(
            "regatta_job_wait_seconds",
            "Time in the queue before a job was placed",
            ("project", "device"),
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self._ran = Histogram(
            "regatta_attempt_duration_seconds",
            "Time from the start of a trainer to the end of its attempt",
            ("task", "outcome"),
            buckets=RUN_BUCKETS,
            registry=registry,
        )

    def catch_up(self, database: Database) -> None:
        """Count what has happened since the last look."""
        with database.reading() as session:
            if self._seen is None:
                self._seen = tallies.last_event(session)
                return
            for _ in range(MOST_BATCHES):
                changes, last = tallies.changes_after(session, self._seen)
                for change in changes:
                    self._count(change)
                if last == self._seen:
                    return
                self._seen = last

    def _count(self, change: tallies.Change) -> None:
        if Status(change.to_status) in TERMINAL:
            self._finished.labels(change.project, change.task, change.to_status, change.reason).inc()
        if change.ends_attempt:
            self._attempts.labels(change.task, change.to_status, change.reason).inc()
        if change.waited_s is not None:
            self._waited.labels(change.project, change.device).observe(change.waited_s)
        if change.ran_s is not None:
            self._ran.labels(change.task, change.to_status).observe(change.ran_s)
