"""Attempts: placing a job on hosts, claiming it, and keeping the claim alive.

The attempt number is the fencing number: a claim, a renewal, a report and an outcome carry it together with
the owner's name, and are refused once another attempt has taken over. Leases are compared with the database's
clock only, and everything below holds the job's row first, so that it happens in one order for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from store.clock import database_now
from store.inputs import InputState, input_states
from store.preemption import is_preempted
from store.reasons import Reason
from store.states import Status, lock_job, transition
from store.tables import Attempt, AttemptNode, Gang, GangHost, Host, Job, OutboxMessage


@dataclass(frozen=True)
class Node:
    """One host of a gang and the devices it gives."""

    host: str
    devices: tuple[int, ...]


@dataclass(frozen=True)
class Claim:
    """What a runner needs to know of the attempt it has claimed. `nodes[rank]` is its own part."""

    job_id: str
    attempt: int
    rank: int
    nodes: tuple[Node, ...]
    task: str
    config: dict[str, Any]
    timeout_s: float | None
    lease_until: float
    events_offset: int
    inputs: tuple[InputState, ...] = ()
    fresh_attempt: int = 1

    @property
    def devices(self) -> tuple[int, ...]:
        """The device numbers of this host that the attempt may use."""
        return self.nodes[self.rank].devices


@dataclass(frozen=True)
class Renewal:
    """`alive`: the attempt is still this owner's; if not, its trainer has to go at once.
    `draining`: a host of its gang is to be emptied. `preempted`: a more urgent job needs its devices.
    `deserted`: a host of its gang has failed, so the others cannot go on.
    """

    alive: bool
    cancel_requested: bool
    draining: bool = False
    preempted: bool = False
    deserted: bool = False


def host_queue(host: str) -> str:
    """Name of the broker queue that a host listens on."""
    return f"host.{host}"


def place(session: Session, job: Job, nodes: Sequence[Node]) -> bool:
    """Give a queued job its hosts, the whole gang or nothing; each host is told through the outbox.

    Returns: False when the job is not queued at this attempt any more, an earlier attempt still holds
    devices, a host is cordoned, or a device is unknown or taken.
    """
    if len({node.host for node in nodes}) != len(nodes) or not nodes:
        raise ValueError("a gang needs at least one host, and each host once")
    seen = lock_job(session, job.id)
    if (
        seen != (Status.queued, job.attempt)
        or _has_open_nodes(session, job.id)
        or not _are_free(session, nodes)
    ):
        return False
    _add_attempt(session, job, nodes)
    placement = [
        {
            "host": node.host,
            "devices": list(node.devices),
            "ranks": [rank * len(node.devices) + n for n in range(len(node.devices))],
        }
        for rank, node in enumerate(nodes)
    ]
    session.execute(update(Job).where(Job.id == job.id).values(placement=placement))
    data = {"placement": placement}
    return transition(
        session,
        job.id,
        Status.starting,
        reason=Reason.placed,
        attempt=job.attempt,
        data=data,
        actor="scheduler",
    )


def _add_attempt(session: Session, job: Job, nodes: Sequence[Node]) -> None:
    now = database_now(session)
    session.add(Attempt(job_id=job.id, number=job.attempt, placed_at=now, message="", events_offset=0))
    session.flush()
    for rank, node in enumerate(nodes):
        part = {"job_id": job.id, "attempt": job.attempt, "rank": rank}
        session.add(AttemptNode(**part, host=node.host, devices=list(node.devices)))
        session.flush()
        session.add(OutboxMessage(**part, queue=host_queue(node.host), created_at=now, due_at=now))
    if len(nodes) > 1:
        session.add(Gang(job_id=job.id, attempt=job.attempt))
        session.flush()
        session.add_all(GangHost(job_id=job.id, attempt=job.attempt, rank=rank) for rank in range(len(nodes)))
    session.flush()


def _has_open_nodes(session: Session, job_id: str) -> bool:
    query = select(AttemptNode.rank).where(AttemptNode.job_id == job_id, AttemptNode.ended_at.is_(None))
    return session.execute(query.limit(1)).first() is not None


def _are_free(session: Session, nodes: Sequence[Node]) -> bool:
    names = sorted(node.host for node in nodes)
    # hosts are locked in one order: two schedulers neither deadlock nor see the same device free
    query = select(Host).where(Host.name.in_(names)).order_by(Host.name).with_for_update()
    hosts = {host.name: host for host in session.execute(query).scalars()}
    taken = select(AttemptNode).where(AttemptNode.host.in_(names), AttemptNode.ended_at.is_(None))
    busy = {(node.host, device) for node in session.execute(taken).scalars() for device in node.devices}
    return all(
        node.host in hosts
        and not hosts[node.host].cordoned
        and {entry["index"] for entry in hosts[node.host].devices}.issuperset(node.devices)
        and not busy.intersection((node.host, device) for device in node.devices)
        for node in nodes
    )


def claim(
    session: Session, job_id: str, attempt: int, host: str, owner: str, *, ttl_s: float
) -> Claim | None:
    """Take this host's part of an attempt; of many claimers one wins. The winner may ask again.

    Returns: None when the attempt is outdated, cancelled, or claimed by another owner.
    """
    seen = lock_job(session, job_id)
    if seen != (Status.starting, attempt):
        return None
    node = _own_node(session, job_id, attempt, host)
    if node is None or node.ended_at is not None or node.owner not in (None, owner):
        return None
    now = database_now(session)
    if node.owner is None:
        node.owner, node.claimed_at = owner, now
    node.lease_until = now + ttl_s
    session.execute(
        delete(OutboxMessage).where(
            OutboxMessage.job_id == job_id, OutboxMessage.attempt == attempt, OutboxMessage.rank == node.rank
        )
    )
    session.flush()
    return _describe_claim(session, node)


def _own_node(session: Session, job_id: str, attempt: int, host: str) -> AttemptNode | None:
    query = select(AttemptNode).where(
        AttemptNode.job_id == job_id, AttemptNode.attempt == attempt, AttemptNode.host == host
    )
    return session.execute(query, execution_options={"populate_existing": True}).scalar_one_or_none()


def _describe_claim(session: Session, node: AttemptNode) -> Claim:
    job = session.get_one(Job, node.job_id)
    attempt = session.get_one(Attempt, (node.job_id, node.attempt))
    gang = select(AttemptNode).where(AttemptNode.job_id == node.job_id, AttemptNode.attempt == node.attempt)
    nodes = session.execute(gang.order_by(AttemptNode.rank)).scalars()
    return Claim(
        job_id=node.job_id,
        attempt=node.attempt,
        rank=node.rank,
        nodes=tuple(Node(part.host, tuple(part.devices)) for part in nodes),
        task=job.task,
        config=job.config_resolved,
        timeout_s=job.timeout_s,
        lease_until=node.lease_until or 0.0,
        events_offset=attempt.events_offset,
        inputs=tuple(input_states(session, [job.id]).get(job.id, ())),
        fresh_attempt=job.fresh_attempt,
    )


def renew(session: Session, job_id: str, attempt: int, owner: str, *, ttl_s: float) -> Renewal:
    """Prolong the lease by `ttl_s` seconds from now, and learn whether the job is wanted to stop."""
    seen = lock_job(session, job_id)
    node = live_node(session, job_id, attempt, owner)
    if seen is None or node is None:
        return Renewal(alive=False, cancel_requested=False)
    node.lease_until = database_now(session) + ttl_s
    session.flush()
    return Renewal(
        alive=True,
        cancel_requested=seen[0] is Status.stopping,
        draining=_is_drained(session, job_id, attempt),
        preempted=is_preempted(session, job_id, attempt),
        deserted=_is_deserted(session, job_id, attempt),
    )


def _is_drained(session: Session, job_id: str, attempt: int) -> bool:
    query = (
        select(Host.name)
        .join(AttemptNode, AttemptNode.host == Host.name)
        .where(AttemptNode.job_id == job_id, AttemptNode.attempt == attempt, Host.draining.is_(True))
    )
    return session.execute(query.limit(1)).first() is not None


def _is_deserted(session: Session, job_id: str, attempt: int) -> bool:
    query = select(GangHost.ending).where(GangHost.job_id == job_id, GangHost.attempt == attempt)
    endings = session.execute(query).scalars()
    return any(ending is not None and ending["status"] == Status.failed for ending in endings)


def events_offset(session: Session, job_id: str, attempt: int, rank: int = 0) -> int:
    """How many bytes of the event file of a host of the attempt were reported; 0 for an unknown one."""
    if rank > 0:
        query = select(GangHost.events_offset).where(
            GangHost.job_id == job_id, GangHost.attempt == attempt, GangHost.rank == rank
        )
        return session.execute(query).scalar_one_or_none() or 0
    query = select(Attempt.events_offset).where(Attempt.job_id == job_id, Attempt.number == attempt)
    return session.execute(query).scalar_one_or_none() or 0


def release(session: Session, job_id: str, attempt: int, owner: str) -> None:
    """Say that nothing of an attempt that has ended runs on this host any more: its devices are free."""
    lock_job(session, job_id)
    session.execute(
        update(AttemptNode)
        .where(
            AttemptNode.job_id == job_id,
            AttemptNode.attempt == attempt,
            AttemptNode.owner == owner,
            AttemptNode.ended_at.is_(None),
        )
        .values(ended_at=database_now(session))
    )


def live_node(session: Session, job_id: str, attempt: int, owner: str) -> AttemptNode | None:
    """The part of a live attempt that this owner holds, or None when it is (no longer) the owner's."""
    query = (
        select(AttemptNode)
        .join(Attempt, (Attempt.job_id == AttemptNode.job_id) & (Attempt.number == AttemptNode.attempt))
        .where(
            AttemptNode.job_id == job_id,
            AttemptNode.attempt == attempt,
            AttemptNode.owner == owner,
            AttemptNode.ended_at.is_(None),
            Attempt.ended_at.is_(None),
        )
    )
    return session.execute(query, execution_options={"populate_existing": True}).scalar_one_or_none()
