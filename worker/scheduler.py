"""The scheduler: places waiting jobs on hosts, tells the hosts, and takes lost jobs back.

Any number may run; the one that holds the lease "scheduler" works, the others wait for it. Should two ever
work at once, the database still lets each device be given out once.
"""

import logging
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime

from celery import Celery
from kombu.exceptions import OperationalError as BrokerError

from store.attempts import Node, place
from store.database import Database, database_now
from store.exclusion import hosts_to_avoid
from store.hosts import Holding, holdings, live_hosts
from store.jobs import explain_wait, queued_jobs
from store.leases import acquire_lease, release_lease
from store.logformat import configure_logging, log_context
from store.outbox import publish
from store.preemption import preempt
from store.quotas import may_start, quotas
from store.reaper import reap
from store.settings import Settings
from store.tables import Host, Job
from store.wake import SCHEDULER, Listener, job_channel, wake
from worker.celery_app import LAUNCH, make_app
from worker.kind import Capacity, Request
from worker.placement import Plan, plan
from worker.preemption import Tenant, make_room
from worker.webhooks import WebhookThread

ROLE_TTL_POLLS = 3
SEEN = 10_000
"""So many waiting jobs are looked at in a pass: with fewer, one project's could hide those of all others."""

log = logging.getLogger(__name__)


def run_scheduler(settings: Settings) -> None:
    """Schedule until SIGTERM or SIGINT."""
    configure_logging(settings.log_format)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    scheduler = Scheduler(settings, Database(settings.database_url), make_app(settings))
    webhooks = WebhookThread(settings)
    webhooks.start()
    with Listener(settings.broker_url, SCHEDULER) as hints:
        while not stopping.is_set():
            try:
                scheduler.tick()
            except Exception:
                log.exception("this pass failed; the next one follows")
                scheduler.lost_contact()
            hints.wait(settings.poll_s)
    scheduler.step_down()
    webhooks.stop()


class Scheduler:
    """One scheduler among any number. `tick` does all that is to be done now."""

    def __init__(
        self, settings: Settings, database: Database, app: Celery, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._database = database
        self._app = app
        self._clock = clock
        self._clocks_apart: float | None = None
        self._owner = f"{settings.host_name}/{os.getpid()}/{time.time_ns()}"
        self._reap_from = 0.0
        self.lost_contact()

    def tick(self) -> None:
        """One pass; does nothing while another scheduler is at work."""
        with self._database.transaction() as session:
            ttl_s = ROLE_TTL_POLLS * self._settings.poll_s
            if not acquire_lease(session, SCHEDULER, self._owner, ttl_s=ttl_s):
                return
            now = database_now(session)
        self._compare_clocks(now)
        if self._clock() >= self._reap_from:
            self._reap()
        self._place()
        self._publish()

    def lost_contact(self) -> None:
        """The database was away, or may have been: let runners renew before any of them counts as lost."""
        self._reap_from = self._clock() + self._settings.host_silence_s

    def _compare_clocks(self, database_time: float) -> None:
        """Leases end by the database's clock: when it was set, they have to be renewed before they count."""
        apart = database_time - self._clock()
        if self._clocks_apart is not None and abs(apart - self._clocks_apart) > self._settings.lease_grace_s:
            log.warning("the database's clock was set by %.0f s", apart - self._clocks_apart)
            self.lost_contact()
        self._clocks_apart = apart

    def step_down(self) -> None:
        """Leave the role to another scheduler at once."""
        try:
            with self._database.transaction() as session:
                release_lease(session, SCHEDULER, self._owner)
        except Exception as error:
            log.warning("the role could not be given back, it ends by itself: %s", error)

    def _reap(self) -> None:
        with self._database.transaction() as session:
            reaped = reap(
                session,
                grace_s=self._settings.lease_grace_s,
                start_timeout_s=self._settings.start_timeout_s,
                policy=self._settings.retry_policy,
            )
        for end in reaped:
            with log_context(job_id=end.job_id, attempt=end.attempt):
                log.warning("job %s, attempt %d: %s, now %s", end.job_id, end.attempt, end.reason, end.status)
            wake(self._settings.broker_url, job_channel(end.job_id))

    def _place(self) -> None:
        """Give devices to the jobs whose turn it is, and let the others say what they wait for."""
        with self._database.reading() as session:
            jobs = {job.id: job for job in queued_jobs(session, SEEN)}
            hosts = live_hosts(session, self._settings.host_silence_s)
            taken = holdings(session)
            limits = quotas(session)
            avoid = hosts_to_avoid(session)
            now = database_now(session)
        if not jobs:
            return
        lingering = {held.job_id: held.host for held in taken if held.job_id in jobs}
        resting = {job.id: job.not_before for job in jobs.values() if job.not_before and job.not_before > now}
        apart = lingering | resting
        over_s = self._settings.start_timeout_s + self._settings.stop_grace_s
        requests = [
            _request(job, over_s, avoid.get(job.id, frozenset()))
            for job in jobs.values()
            if job.id not in apart
        ]
        grace_s = self._settings.stop_grace_s
        decision = plan(requests, _capacities(hosts, taken, now, grace_s), limits, _held(taken))
        for job_id, shares in decision.placed.items():
            nodes = [Node(share.host, share.devices) for share in shares]
            with self._database.transaction() as session:
                placed = may_start(session, jobs[job_id]) and place(session, jobs[job_id], nodes)
            if placed:
                with log_context(job_id=job_id, attempt=jobs[job_id].attempt):
                    log.info("job %s, attempt %d: placed on %s", job_id, jobs[job_id].attempt, nodes)
                wake(self._settings.broker_url, job_channel(job_id))
        waiting = decision.waiting | {job_id: _rest(until) for job_id, until in resting.items()}
        if self._settings.preemption:
            waiting |= self._preempt(decision, taken, now)
        waiting |= {
            job_id: f"waiting for its earlier attempt to let go of its devices on {host}"
            for job_id, host in lingering.items()
        }
        self._explain({job_id: why for job_id, why in waiting.items() if jobs[job_id].message != why})

    def _preempt(self, decision: Plan, taken: list[Holding], now: float) -> dict[str, str]:
        """Let attempts make room for the first jobs that wait, and say so in what those wait for."""
        tenants = _tenants(taken)
        told = {}
        for request, hosts in decision.heads:
            coming = _coming(hosts, taken, now, self._settings.stop_grace_s)
            asked = make_room(request, hosts, tenants, coming=coming, margin=self._settings.preemption_margin)
            if asked:
                attempts = {tenant.job_id: tenant.attempt for tenant in asked}
                with self._database.transaction() as session:
                    if not preempt(session, request.job_id, attempts):
                        continue
                log.info("job %s: %s make room for it", request.job_id, ", ".join(attempts))
                wake(self._settings.broker_url, *map(job_channel, attempts))
            leaving = {part.job_id for part in taken if part.preempted_for == request.job_id}
            if count := len(leaving | {tenant.job_id for tenant in asked}):
                jobs = f"{count} job{' makes' if count == 1 else 's make'}"
                told[request.job_id] = f"{decision.waiting[request.job_id]}; {jobs} room for it"
        return told

    def _explain(self, waiting: dict[str, str]) -> None:
        if waiting:
            with self._database.transaction() as session:
                for job_id, why in waiting.items():
                    explain_wait(session, job_id, why)
            wake(self._settings.broker_url, *(job_channel(job_id) for job_id in waiting))

    def _publish(self) -> None:
        try:
            publish(self._database, self._send, republish_s=self._settings.republish_s)
        except (BrokerError, OSError) as error:
            log.warning("the broker is away, hosts are told later: %s", error)

    def _send(self, queue: str, job_id: str, attempt: int) -> None:
        self._app.send_task(LAUNCH, args=(job_id, attempt), queue=queue, retry=False)


def _rest(until: float) -> str:
    moment = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"waits until {moment} before it is tried again"


def _request(job: Job, over_s: float, avoid: frozenset[str]) -> Request:
    """What a job wants. Around its time limit it may hold its devices for `over_s` seconds more."""
    return Request(
        job.id,
        job.device,
        job.nodes,
        job.devices_per_node,
        job.priority,
        job.created_at,
        job.project,
        None if job.timeout_s is None else job.timeout_s + over_s,
        avoid,
    )


def _tenants(taken: list[Holding]) -> list[Tenant]:
    """The attempts that may be asked to make room."""
    parts: dict[str, list[Holding]] = defaultdict(list)
    for part in taken:
        parts[part.job_id].append(part)
    return [
        Tenant(
            job_id,
            held[0].attempt,
            held[0].priority,
            held[0].since,
            {part.host: len(part.devices) for part in held},
        )
        for job_id, held in parts.items()
        if not any(part.leaving for part in held)
    ]


def _coming(hosts: list[Capacity], taken: list[Holding], now: float, grace_s: float) -> Counter[str]:
    """How many devices of the hosts are free as soon as those would be that somebody is asked for."""
    coming = Counter({host.host: 0 for host in hosts})
    for part in taken:
        due = part.timeout_s is not None and part.since + part.timeout_s - now <= grace_s
        if part.leaving or due:
            coming[part.host] += len(part.devices)
    return coming


def _held(taken: list[Holding]) -> Counter[str]:
    """How many devices each project holds."""
    held: Counter[str] = Counter()
    for part in taken:
        held[part.project] += len(part.devices)
    return held


def _capacities(hosts: list[Host], taken: list[Holding], now: float, grace_s: float) -> list[Capacity]:
    """The hosts, and what is known of when their devices are free: who makes room has `grace_s` for it."""
    busy: dict[str, set[int]] = defaultdict(set)
    ends: dict[str, list[float]] = defaultdict(list)
    for part in taken:
        busy[part.host].update(part.devices)
        if part.preempted_at is not None:
            ends[part.host] += [max(part.preempted_at + grace_s - now, 0.0)] * len(part.devices)
        elif part.timeout_s is not None:
            ends[part.host] += [max(part.since + part.timeout_s - now, 0.0)] * len(part.devices)
    return [
        Capacity(
            host.name,
            host.device,
            len(host.devices),
            tuple(entry["index"] for entry in host.devices if entry["index"] not in busy[host.name]),
            tuple(ends[host.name]),
        )
        for host in hosts
    ]
