"""Attempts on several hosts: how their hosts meet, number their log lines, and come to one end.

Each host speaks for itself alone, with its claim of the attempt (see `store.attempts`); the job's row is held
first, so that everything here happens in one order for all hosts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from store.artifacts import FileEntry, Manifest
from store.attempts import live_node
from store.states import lock_job
from store.tables import AttemptNode, CheckpointPart, Gang, GangHost

RECOVERED = 1
"""Stage of a host that has delivered what earlier attempts left there."""
READY = 2
"""Stage of a host that has all its trainer needs."""


@dataclass(frozen=True)
class Meeting:
    """How far the hosts of an attempt are.

    Attributes:
        stages: of the hosts, by rank.
        decided: whether it is known from where they go on.
        checkpoint: the checkpoint that they go on from; None: from the beginning.
        address: where their trainers meet, `ip:port`; None while that is not known.
    """

    stages: tuple[int, ...]
    decided: bool
    checkpoint: str | None
    address: str | None

    def all_are(self, stage: int) -> bool:
        """Whether every host has come as far as that."""
        return all(reached >= stage for reached in self.stages)


def arrive(session: Session, job_id: str, attempt: int, owner: str, stage: int) -> Meeting | None:
    """Say how far this host is, and see how far the others are; None when the attempt is not this owner's."""
    lock_job(session, job_id)
    node = live_node(session, job_id, attempt, owner)
    if node is None:
        return None
    host = _host(session, job_id, attempt, node.rank)
    host.stage = max(host.stage, stage)
    session.flush()
    gang = _gang(session, job_id, attempt)
    return Meeting(
        tuple(known.stage for known in _hosts(session, job_id, attempt)),
        gang.start is not None,
        (gang.start or {}).get("checkpoint"),
        gang.address,
    )


def decide_start(session: Session, job_id: str, attempt: int, owner: str, checkpoint: str | None) -> bool:
    """Let the first host say from where all go on; what was said first counts. False: not its attempt."""
    return _decide(session, job_id, attempt, owner, start={"checkpoint": checkpoint})


def announce_address(session: Session, job_id: str, attempt: int, owner: str, address: str) -> bool:
    """Let the first host say where the trainers meet. False: it is not its attempt."""
    return _decide(session, job_id, attempt, owner, address=address)


def _decide(session: Session, job_id: str, attempt: int, owner: str, **values: Any) -> bool:
    lock_job(session, job_id)
    node = live_node(session, job_id, attempt, owner)
    if node is None or node.rank != 0:
        return False
    gang = _gang(session, job_id, attempt)
    for name, value in values.items():
        if getattr(gang, name) is None:
            setattr(gang, name, value)
    session.flush()
    return True


@dataclass(frozen=True)
class Block:
    """Lines of one host: its own numbers `first` and on, `count` of them, are `number` and on in the log."""

    first: int
    count: int
    number: int


def last_block(session: Session, job_id: str, attempt: int, rank: int) -> Block | None:
    """The lines of a host that were numbered last; whether they are archived is not known here."""
    stored = _host(session, job_id, attempt, rank).log_block
    return None if stored is None else Block(**stored)


def number_lines(session: Session, job_id: str, attempt: int, rank: int, first: int, count: int) -> Block:
    """Give the next lines of a host their numbers in the attempt's log. The last call may be repeated, and is
    answered alike.

    Raises: ValueError when lines between these and the last ones were left out.
    """
    lock_job(session, job_id)
    known = last_block(session, job_id, attempt, rank)
    if known is not None and known.first == first:
        return known
    expected = 1 if known is None else known.first + known.count
    if first != expected:
        raise ValueError(f"line {first} of host {rank} cannot be numbered: line {expected} comes first")
    gang = _gang(session, job_id, attempt)
    block = Block(first, count, gang.log_lines + 1)
    gang.log_lines += count
    _host(session, job_id, attempt, rank).log_block = vars(block) | {}
    session.flush()
    return block


def add_part(
    session: Session,
    job_id: str,
    attempt: int,
    name: str,
    rank: int,
    files: Sequence[FileEntry],
) -> Manifest | None:
    """Note what a host has uploaded of a checkpoint; all files of it once every host has, else None.

    A host may say it again.
    """
    lock_job(session, job_id)
    session.merge(
        CheckpointPart(
            job_id=job_id, attempt=attempt, name=name, rank=rank, files=[entry.as_dict() for entry in files]
        )
    )
    session.flush()
    query = select(CheckpointPart).where(
        CheckpointPart.job_id == job_id, CheckpointPart.attempt == attempt, CheckpointPart.name == name
    )
    parts = list(session.execute(query, execution_options={"populate_existing": True}).scalars())
    if len(parts) < len(_hosts(session, job_id, attempt)):
        return None
    entries = (FileEntry(**entry) for part in parts for entry in part.files)
    return Manifest(tuple(sorted(entries, key=lambda entry: entry.path)))


def forget_parts(session: Session, job_id: str, attempt: int, name: str) -> bool:
    """Forget what hosts have uploaded of a checkpoint that is complete or removed; whether there was any."""
    removed = session.execute(
        delete(CheckpointPart)
        .where(
            CheckpointPart.job_id == job_id, CheckpointPart.attempt == attempt, CheckpointPart.name == name
        )
        .returning(CheckpointPart.rank)
    )
    return bool(removed.all())


def note_ending(session: Session, node: AttemptNode, ending: dict[str, Any]) -> list[GangHost] | None:
    """Keep how a host has ended; the hosts of its gang, by rank, when it was the last, else None."""
    _host(session, node.job_id, node.attempt, node.rank).ending = ending
    session.flush()
    query = select(AttemptNode.rank).where(
        AttemptNode.job_id == node.job_id, AttemptNode.attempt == node.attempt, AttemptNode.ended_at.is_(None)
    )
    open_ = session.execute(query.limit(1)).first() is not None
    return None if open_ else _hosts(session, node.job_id, node.attempt)


def has_ended(session: Session, job_id: str, attempt: int, owner: str) -> bool:
    """Whether this owner's part of an attempt on several hosts is over, as it has reported before."""
    query = (
        select(GangHost.ending)
        .join(
            AttemptNode,
            (AttemptNode.job_id == GangHost.job_id)
            & (AttemptNode.attempt == GangHost.attempt)
            & (AttemptNode.rank == GangHost.rank),
        )
        .where(GangHost.job_id == job_id, GangHost.attempt == attempt, AttemptNode.owner == owner)
    )
    return session.execute(query).scalar_one_or_none() is not None


def is_gang(session: Session, job_id: str, attempt: int) -> bool:
    """Whether the attempt has several hosts."""
    return session.get(Gang, (job_id, attempt)) is not None


def gang_host(session: Session, job_id: str, attempt: int, rank: int) -> GangHost:
    """The row of a host of a gang."""
    return _host(session, job_id, attempt, rank)


def _gang(session: Session, job_id: str, attempt: int) -> Gang:
    return session.get_one(Gang, (job_id, attempt), populate_existing=True)


def _host(session: Session, job_id: str, attempt: int, rank: int) -> GangHost:
    return session.get_one(GangHost, (job_id, attempt, rank), populate_existing=True)


def _hosts(session: Session, job_id: str, attempt: int) -> list[GangHost]:
    query = select(GangHost).where(GangHost.job_id == job_id, GangHost.attempt == attempt)
    ordered = query.order_by(GangHost.rank)
    return list(session.execute(ordered, execution_options={"populate_existing": True}).scalars())
