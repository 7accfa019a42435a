"""Hosts, their devices, and which of them are free."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.audit import add_action
from store.clock import database_now
from store.errors import NotFound
from store.tables import Attempt, AttemptNode, Base, Host, Job

_HOSTS = Base.metadata.tables["hosts"]
_DEVICES = select(_HOSTS.c.device, _HOSTS.c.devices).order_by(_HOSTS.c.name)


def register_host(
    session: Session,
    name: str,
    *,
    device: str,
    devices: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str] | None = None,
    info: Mapping[str, Any] | None = None,
) -> Host:
    """Announce a host and its devices, or describe a known one anew; it accepts jobs from now on.

    Args:
        device: kind of its devices, "cpu" or "gpu".
        devices: one mapping per device; "index" (int) is the number that placements use.
        info: anything worth showing (versions, memory, process id).
    """
    now = database_now(session)
    known = session.get(Host, name)
    counted = {} if known is None else {each.get("uuid"): each for each in known.devices}
    host = session.merge(
        Host(
            name=name,
            device=device,
            devices=[_as_known(entry, counted) for entry in devices],
            labels=dict(labels or {}),
            info=dict(info or {}),
            accepts_jobs=True,
            registered_at=now if known is None else known.registered_at,
            heartbeat_at=now,
        )
    )
    session.flush()
    return host


def _as_known(entry: Mapping[str, Any], known: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    """The device with the errors that were counted on it before."""
    before = known.get(entry["uuid"], {}) if "uuid" in entry else {}
    return {**entry, **{key: before[key] for key in ("uncorrected_errors",) if key in before}}


def heartbeat_host(session: Session, name: str) -> bool:
    """Say that the host is there; False when it has to register first."""
    return _update(session, name, heartbeat_at=database_now(session))


def set_accepts_jobs(session: Session, name: str, accepts: bool) -> bool:
    """Let a host take new jobs or not, for example while its worker shuts down; False when it is unknown."""
    return _update(session, name, accepts_jobs=accepts)


def cordon_host(session: Session, name: str, reason: str = "", *, actor: str = "") -> Host:
    """Give the host no new jobs until it is uncordoned, also when its worker starts again; those that run go
    on. Asking again changes the reason. Raises: NotFound.
    """
    host = _lock_host(session, name)
    host.cordoned, host.cordon_reason = True, reason
    _note(session, host, "host_cordoned", actor)
    return host


def drain_host(session: Session, name: str, reason: str = "", *, actor: str = "") -> tuple[Host, list[str]]:
    """Cordon the host, and let what runs there stop with a checkpoint and wait for devices elsewhere.

    Returns: the host and the jobs that hold its devices: their runners learn it when they renew their leases.
    Raises: NotFound.
    """
    host = _lock_host(session, name)
    host.cordoned, host.draining, host.cordon_reason = True, True, reason
    _note(session, host, "host_drained", actor)
    return host, [part.job_id for part in allocations(session) if part.host == name]


def uncordon_host(session: Session, name: str, *, actor: str = "") -> Host:
    """Give the host jobs again, whatever has failed there. Raises: NotFound."""
    host = _lock_host(session, name)
    host.cordoned, host.draining, host.cordon_reason = False, False, ""
    host.exclusion_reason, host.excluded_until, host.failures = "", None, []
    _note(session, host, "host_uncordoned", actor)
    return host


def _lock_host(session: Session, name: str) -> Host:
    """The host, held until the transaction ends: nothing is placed there meanwhile."""
    query = select(Host).where(Host.name == name).with_for_update()
    host = session.execute(query, execution_options={"populate_existing": True}).scalar_one_or_none()
    if host is None:
        raise NotFound(f"host {name}")
    return host


def _note(session: Session, host: Host, kind: str, actor: str) -> None:
    session.flush()
    data = {"host": host.name, "reason": host.cordon_reason}
    add_action(session, kind, f"host {host.name}", project=None, actor=actor, data=data)


def list_hosts(session: Session) -> list[Host]:
    """All known hosts by name."""
    return list(session.execute(select(Host).order_by(Host.name)).scalars())


def devices_of_hosts(session: Session) -> list[tuple[str, list[dict[str, Any]]]]:
    """Kind and devices of every known host."""
    return [(row.device, row.devices) for row in session.execute(_DEVICES)]


def live_hosts(session: Session, within_s: float) -> list[Host]:
    """Hosts that accept jobs and may get some, and whose last heartbeat is at most `within_s` seconds old."""
    now = database_now(session)
    query = select(Host).where(
        Host.accepts_jobs.is_(True),
        Host.cordoned.is_(False),
        Host.heartbeat_at >= now - within_s,
        (Host.exclusion_reason == "") | (Host.excluded_until <= now),
    )
    return list(session.execute(query.order_by(Host.name)).scalars())


def allocations(session: Session) -> list[AttemptNode]:
    """Every part of an attempt that holds devices now."""
    query = select(AttemptNode).where(AttemptNode.ended_at.is_(None))
    return list(session.execute(query.order_by(AttemptNode.host)).scalars())


@dataclass(frozen=True)
class Holding:
    """Devices of one host that a job holds.

    Attributes:
        timeout_s: how long the attempt may run, None: for ever.
        since: when the attempt started, or was placed while it has not (unix seconds).
        leaving: whether the attempt is over, or was asked to stop.
        preempted_for: the job that it was asked to make room for.
        preempted_at: when that was (unix seconds).
    """

    job_id: str
    attempt: int
    priority: int
    project: str
    host: str
    devices: tuple[int, ...]
    timeout_s: float | None
    since: float
    leaving: bool = False
    preempted_for: str | None = None
    preempted_at: float | None = None


def holdings(session: Session) -> list[Holding]:
    """Every part of an attempt that holds devices now, and for how long it may."""
    query = (
        select(AttemptNode, Attempt, Job.project, Job.timeout_s, Job.priority, Job.status)
        .join(Job, Job.id == AttemptNode.job_id)
        .join(Attempt, (Attempt.job_id == AttemptNode.job_id) & (Attempt.number == AttemptNode.attempt))
        .where(AttemptNode.ended_at.is_(None))
        .order_by(AttemptNode.host, AttemptNode.job_id)
    )
    return [
        Holding(
            job_id=node.job_id,
            attempt=node.attempt,
            priority=priority,
            project=project,
            host=node.host,
            devices=tuple(node.devices),
            timeout_s=timeout_s,
            since=attempt.started_at or attempt.placed_at,
            leaving=(
                attempt.ended_at is not None or attempt.preempted_at is not None or status == "stopping"
            ),
            preempted_for=attempt.preempted_for,
            preempted_at=attempt.preempted_at,
        )
        for node, attempt, project, timeout_s, priority, status in session.execute(query)
    ]


def busy_devices(session: Session) -> dict[str, set[int]]:
    """Device numbers in use, by host."""
    busy: dict[str, set[int]] = defaultdict(set)
    for node in allocations(session):
        busy[node.host].update(node.devices)
    return dict(busy)


def _update(session: Session, name: str, **values: Any) -> bool:
    changed = session.execute(update(Host).where(Host.name == name).values(**values).returning(Host.name))
    return changed.scalar_one_or_none() is not None
