"""What an operator watches, as it is now. Every query is answered by an index over what is not finished."""

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from store.clock import database_now
from store.exclusion import is_excluded
from store.hosts import busy_devices, list_hosts
from store.states import ACTIVE, Status
from store.tables import Job, Lease, OutboxMessage, WebhookDelivery
from store.wake import SCHEDULER
from store.webhooks import DeliveryStatus


class Waiting(NamedTuple):
    """Queued jobs of one project, kind of device and priority class: high is above 0, low is below it."""

    project: str
    priority: str
    device: str
    jobs: int
    oldest_s: float


class Busy(NamedTuple):
    """Jobs that a host has been given, of one project, status and kind of device."""

    project: str
    status: str
    device: str
    jobs: int


class HostGauge(NamedTuple):
    name: str
    device: str
    devices: int
    used: int
    heartbeat_age_s: float
    accepts_jobs: bool
    excluded: bool


@dataclass(frozen=True)
class Gauges:
    """One look at the database."""

    waiting: list[Waiting]
    busy: list[Busy]
    hosts: list[HostGauge]
    outbox: int
    outbox_oldest_s: float
    webhooks: int
    scheduler_up: bool


def read_gauges(session: Session) -> Gauges:
    """What there is to be told now."""
    now = database_now(session)
    outbox, outbox_since = session.execute(select(func.count(), func.min(OutboxMessage.created_at))).one()
    lease_until = session.execute(select(Lease.lease_until).where(Lease.name == SCHEDULER)).scalar()
    return Gauges(
        waiting=_waiting(session, now),
        busy=_busy(session),
        hosts=_hosts(session, now),
        outbox=outbox,
        outbox_oldest_s=_age(now, outbox_since),
        webhooks=_webhooks(session),
        scheduler_up=lease_until is not None and lease_until > now,
    )


def _waiting(session: Session, now: float) -> list[Waiting]:
    priority = case((Job.priority > 0, "high"), (Job.priority < 0, "low"), else_="normal")
    query = (
        select(Job.project, priority, Job.device, func.count(), func.min(Job.queued_at))
        .where(Job.status == Status.queued)
        .group_by(Job.project, priority, Job.device)
    )
    return [Waiting(*row[:4], _age(now, row[4])) for row in session.execute(query)]


def _busy(session: Session) -> list[Busy]:
    query = (
        select(Job.project, Job.status, Job.device, func.count())
        .where(Job.status.in_(ACTIVE))
        .group_by(Job.project, Job.status, Job.device)
    )
    return [Busy(*row) for row in session.execute(query)]


def _hosts(session: Session, now: float) -> list[HostGauge]:
    used = busy_devices(session)
    return [
        HostGauge(
            host.name,
            host.device,
            len(host.devices),
            len(used.get(host.name, ())),
            _age(now, host.heartbeat_at),
            host.accepts_jobs and not host.cordoned,
            is_excluded(host, now),
        )
        for host in list_hosts(session)
    ]


def _webhooks(session: Session) -> int:
    waiting = WebhookDelivery.status == DeliveryStatus.waiting
    return session.execute(select(func.count()).where(waiting)).scalar_one()


def _age(now: float, since: float | None) -> float:
    return 0.0 if since is None else max(0.0, now - since)
