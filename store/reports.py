"""What a runner reports of its attempt: events while it runs, exactly one outcome at its end."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import update
from sqlalchemy.orm import Session

from store.artifacts import FileEntry, Manifest
from store.attempts import live_node
from store.checkpoints import RESULT, Published, get_checkpoint, record_checkpoint, remove_checkpoint
from store.clock import database_now
from store.completion import DONE, complete, has_result
from store.errors import OffsetConflict
from store.events import add_event
from store.exclusion import note_failure, note_success
from store.gangs import gang_host, has_ended, is_gang, note_ending
from store.jobs import update_progress
from store.metrics import EVAL, TRAIN, record
from store.reasons import Reason
from store.retries import forgive, judge
from store.retry_policy import DEFAULT_POLICY, RetryPolicy
from store.states import Status, lock_job, transition
from store.tables import Attempt, AttemptNode

Event = Mapping[str, Any]


class Certainty(StrEnum):
    """What the failure of one host of several means for the attempt."""

    certain = "certain"
    """It ends the attempt at once."""
    patient = "patient"
    """It ends the attempt when all hosts are done: they stop together, and may still have to deliver."""
    doubtful = "doubtful"
    """Likewise, and only where no host knows a better cause: that of this one's failure was another host."""


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended, and what is left to tell of it.

    Attributes:
        certainty: of a failure on one host of several: what it means for the attempt.
        exit_code: the trainer's; None when it never ran.
        signal: name of the signal that ended it.
        log: the last lines that it wrote.
    """

    status: Status
    reason: Reason
    message: str = ""
    exit_code: int | None = None
    signal: str | None = None
    log: tuple[str, ...] = ()
    certainty: Certainty = Certainty.certain

    def __post_init__(self) -> None:
        if self.status not in (Status.succeeded, Status.failed, Status.cancelled):
            raise ValueError(f"an attempt ends succeeded, failed or cancelled, not {self.status.value}")


def report(
    session: Session,
    job_id: str,
    attempt: int,
    owner: str,
    events: Sequence[Event],
    offset: int,
    *,
    start: int,
    source: int | None = None,
    rank: int = 0,
) -> bool:
    """Store a piece of the trainer's event file: metrics, progress, warnings, published checkpoints.

    The end of the piece is stored in the same transaction, so each event counts once: a piece that was
    accepted before is passed over.

    Args:
        events: objects of the trainer's event stream. "checkpoint" and "result" are stored when the runner
            has published them and added "key" and "files" (the entries of the artifact's manifest).
        offset: byte of the event file where the piece ends; `start` is where it begins.
        source: the earlier attempt that wrote the event file, when this owner reports what that one left.
        rank: of the host that wrote the event file, among those of its attempt.

    Returns: False when the attempt is (no longer) this owner's.
    Raises: OffsetConflict when the piece begins where no accepted one has ended.
    """
    seen = lock_job(session, job_id)
    node = live_node(session, job_id, attempt, owner)
    if seen is None or node is None:
        return False
    source = attempt if source is None else source
    if rank > 0:
        row = gang_host(session, job_id, source, rank)
    else:
        row = session.get_one(Attempt, (job_id, source), populate_existing=True)
    if offset <= row.events_offset:
        return True
    if start != row.events_offset:
        raise OffsetConflict(expected=row.events_offset, start=start)
    for event in events:
        if source == attempt or event["type"] != "progress":  # where the job stands, the live attempt says
            _store(session, job_id, source, event, f"host {node.host}")
    row.events_offset = offset
    session.flush()
    return True


def _store(session: Session, job_id: str, attempt: int, event: Event, actor: str) -> None:
    kind = event["type"]
    values = {key: value for key, value in event.items() if key not in ("t", "type")}
    if kind == "progress":
        _store_progress(session, job_id, attempt, values, actor)
    elif kind in ("metric", "eval"):
        step = values.pop("step")
        record(session, job_id, attempt, EVAL if kind == "eval" else TRAIN, step, event["t"], values)
    elif kind in ("checkpoint", "result"):
        _store_checkpoint(session, job_id, attempt, kind, event, actor)
    elif kind == "checkpoint_removed":
        remove_checkpoint(session, job_id, values["name"])
        add_event(
            session, job_id, kind, f"{values['name']} removed", data=values, time=event["t"], actor=actor
        )
    else:
        message = _sentence(values.get("loc"), values.pop("msg", ""))
        add_event(session, job_id, kind, message, data=values, time=event["t"], actor=actor)


def _sentence(loc: object, msg: str) -> str:
    """The message with the place that it is about, so that it can be read alone."""
    place = "/".join(map(str, loc)) if isinstance(loc, list) else ""
    return msg if not place or msg.startswith(place) else f"{place}: {msg}"


def _store_progress(session: Session, job_id: str, attempt: int, values: dict[str, Any], actor: str) -> None:
    started = transition(session, job_id, Status.running, reason=Reason.started, attempt=attempt, actor=actor)
    if started:
        session.execute(
            update(Attempt)
            .where(Attempt.job_id == job_id, Attempt.number == attempt)
            .values(started_at=database_now(session))
        )
    update_progress(session, job_id, attempt, **values)


def _store_checkpoint(
    session: Session, job_id: str, attempt: int, kind: str, event: Event, actor: str
) -> None:
    name = RESULT if kind == "result" else event["name"]
    if "key" not in event:
        raise ValueError(f"{name}: publish the directory and add its key and files before it is reported")
    files = tuple(FileEntry(**entry) for entry in event["files"])
    known = get_checkpoint(session, job_id, name)
    if known is None or known.key != event["key"]:
        data = {"name": name, "step": event.get("step"), "metrics": event.get("metrics", {})}
        add_event(session, job_id, kind, f"{name} published", data=data, time=event["t"], actor=actor)
    record_checkpoint(
        session,
        job_id,
        attempt,
        Published(
            name=name,
            key=event["key"],
            manifest=Manifest(files),
            step=event.get("step"),
            metrics=event.get("metrics", {}),
            best=bool(event.get("best")),
        ),
    )
    forgive(session, job_id)


def finish(
    session: Session,
    job_id: str,
    attempt: int,
    owner: str,
    outcome: Outcome,
    policy: RetryPolicy = DEFAULT_POLICY,
) -> bool:
    """Report the end of this owner's part. A gang succeeds, or stops, when all its hosts have; any host's own
    failure ends it at once. Of all reports one becomes the outcome: the first cause that is known.

    A job that was asked to stop ends `cancelled` whatever the outcome. One whose result this attempt has kept
    has succeeded, whatever became of the trainer afterwards. A failed one goes back to the queue when its
    reason and the policy allow that.

    Returns: False when the attempt is no longer this owner's. The same report again returns True.
    """
    seen = lock_job(session, job_id)
    row = session.get(Attempt, (job_id, attempt), populate_existing=True)
    if seen is None or row is None:
        return False
    if row.finished_by == owner:
        return True
    node = live_node(session, job_id, attempt, owner)
    if node is None:
        return has_ended(session, job_id, attempt, owner)
    node.ended_at = database_now(session)
    session.flush()
    concluded = _conclude(session, node, outcome)
    if concluded is None:
        return True
    node, outcome = concluded
    row.finished_by, row.exit_code = owner, outcome.exit_code
    session.flush()
    _move_on(session, node, seen[0], outcome, policy)
    return True


def _conclude(session: Session, node: AttemptNode, outcome: Outcome) -> tuple[AttemptNode, Outcome] | None:
    """Whose outcome ends the attempt, and which; None while other hosts of a gang are not done."""
    if not is_gang(session, node.job_id, node.attempt):
        return node, outcome
    hosts = note_ending(session, node, asdict(outcome))
    if outcome.status is Status.failed and outcome.certainty is Certainty.certain:
        return node, outcome
    if hosts is None:
        return None
    told = [(host.rank, _outcome(host.ending)) for host in hosts if host.ending is not None]
    rank, best = min(told, key=lambda one: (_weight(one[1]), one[0]))
    return session.get_one(AttemptNode, (node.job_id, node.attempt, rank)), best


def _weight(outcome: Outcome) -> int:
    """The smallest counts."""
    if outcome.status is not Status.failed:
        return 2
    return 1 if outcome.certainty is Certainty.doubtful else 0


def _outcome(ending: Mapping[str, Any]) -> Outcome:
    """What was kept of an outcome."""
    kinds = {
        "status": Status(ending["status"]),
        "reason": Reason(ending["reason"]),
        "certainty": Certainty(ending["certainty"]),
        "log": tuple(ending["log"]),
    }
    return Outcome(**{**ending, **kinds})


def _move_on(
    session: Session, node: AttemptNode, status: Status, outcome: Outcome, policy: RetryPolicy
) -> None:
    job_id, attempt = node.job_id, node.attempt
    to, reason, message = outcome.status, outcome.reason, outcome.message
    evidence = None
    if status is Status.stopping:
        to, reason = Status.cancelled, Reason.user_cancelled
    elif to is Status.cancelled:
        raise ValueError(f"job {job_id} was not asked to stop; it can succeed or fail, not be cancelled")
    elif to is Status.succeeded or has_result(session, job_id, attempt):
        message = message if to is Status.succeeded else DONE
        data = {"exit_code": outcome.exit_code}
        note_success(session, node.host)
        complete(session, job_id, attempt, message=message, data=data, actor=f"host {node.host}")
        return
    else:
        evidence = _evidence(node, outcome)
        verdict = judge(session, job_id, reason, policy)
        to = Status.queued if verdict.again else Status.failed
        message = f"{message} {verdict.note}".strip()
    transition(
        session,
        job_id,
        to,
        reason=reason,
        message=message,
        attempt=attempt,
        data={"exit_code": outcome.exit_code},
        evidence=evidence,
        actor=f"host {node.host}",
    )
    # of several hosts, the one that tells of a failure is often not the one that is to blame
    if evidence and (reason is Reason.device_error or not is_gang(session, job_id, attempt)):
        note_failure(session, node.host, job_id, reason, policy.exclusion)


def _evidence(node: AttemptNode, outcome: Outcome) -> dict[str, Any]:
    return {
        "attempt": node.attempt,
        "host": node.host,
        "message": outcome.message,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "log": list(outcome.log),
    }
