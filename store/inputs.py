"""What a job uses of other jobs and of data sets: recorded with it, waited for, and found when it starts.

A job's result is there once that job has succeeded. A named checkpoint is there once that job has ended in
any way and the checkpoint is among what was published: while it runs, the next one may take its place.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, exists, or_, select
from sqlalchemy.orm import Session, aliased

from store.checkpoints import RESULT
from store.errors import Conflict
from store.reasons import Reason
from store.tables import Checkpoint, Dataset, Job, JobInput

SUCCEEDED = "succeeded"
ENDED = (SUCCEEDED, "failed", "cancelled")
LONGEST_CAUSE = 500
"""Characters that are told of why an input has failed."""


@dataclass(frozen=True)
class Input:
    """What one argument of a job refers to: a job's result, one of its checkpoints, or a data set."""

    argument: str
    job_id: str | None = None
    checkpoint: str | None = None
    dataset_id: str | None = None


@dataclass(frozen=True)
class InputState:
    """An input of a job, and how it stands.

    Attributes:
        status: that of the job it comes from; None: there is none of this id (any more).
        key: where the artifacts have it; None: it is not published.
    """

    argument: str
    job_id: str | None
    checkpoint: str | None
    dataset_id: str | None
    status: str | None
    reason: str
    message: str
    progress: Mapping[str, Any]
    key: str | None

    @property
    def ready(self) -> bool:
        """Whether it can be fetched."""
        if self.dataset_id is not None:
            return self.key is not None
        return self.status == SUCCEEDED and self.key is not None if self.checkpoint is None else self._kept

    @property
    def _kept(self) -> bool:
        return self.status in ENDED and self.key is not None

    @property
    def broken(self) -> bool:
        """Whether waiting does not help: it was deleted, or ended without what is wanted of it."""
        return not self.ready and (self.status is None or self.status in ENDED)

    def why(self) -> str:
        """Why it is not there, as part of a sentence."""
        if self.dataset_id is not None:
            return f"data set {self.dataset_id}, which was deleted"
        name = f"job {self.job_id}"
        if self.status is None:
            return f"{name}, which was deleted"
        if self.status in ENDED and self.checkpoint is not None:
            return f"checkpoint {self.checkpoint} of {name}, which {_ended(self.status)} without it"
        if self.status == SUCCEEDED:
            return f"{name}, which has succeeded but keeps no result"
        if self.status in ENDED:
            cause = f": {self.message}" if self.message else ""
            return f"{name}, which {_ended(self.status)} ({self.reason}){cause[:LONGEST_CAUSE]}"
        return f"{name} ({self.status}{self._progress()})"

    def _progress(self) -> str:
        step, total = self.progress.get("step"), self.progress.get("total_steps")
        if self.status != "running" or step is None:
            return ""
        return f", step {step} of {total}" if total else f", step {step}"


class InputGone(Conflict):
    """What a new job refers to is not there any more; `argument` says where."""

    def __init__(self, argument: str, message: str) -> None:
        super().__init__(message)
        self.argument = argument


def add_inputs(session: Session, job_id: str, project: str, inputs: Collection[Input]) -> None:
    """Record what a job uses. Until the transaction ends nobody can delete it.

    Raises: InputGone when some of it is not there, or in another project.
    """
    hold_inputs(session, inputs)
    for each in inputs:
        if not session.execute(_in_project(each, project)).first():
            missing = f"job {each.job_id!r}" if each.job_id else f"data set {each.dataset_id!r}"
            raise InputGone(each.argument, f"there is no {missing}")
        session.add(
            JobInput(
                job_id=job_id,
                argument=each.argument,
                uses_job=each.job_id,
                checkpoint=each.checkpoint,
                uses_dataset=each.dataset_id,
            )
        )
    session.flush()
    for state in input_states(session, [job_id]).get(job_id, ()):
        if state.broken:
            raise InputGone(state.argument, f"it needs {state.why()}")


def hold_inputs(session: Session, inputs: Iterable[Input]) -> None:
    """Let nobody delete or move on what is used until the transaction ends. Jobs are held in the order of
    their ids, in which they were made: what is used before what uses it.
    """
    inputs = list(inputs)
    jobs = sorted({each.job_id for each in inputs if each.job_id})
    datasets = sorted({each.dataset_id for each in inputs if each.dataset_id})
    if jobs:
        query = select(Job.id).where(Job.id.in_(jobs)).order_by(Job.id)
        session.execute(query.with_for_update(read=True)).all()
    if datasets:
        query = select(Dataset.id).where(Dataset.id.in_(datasets)).order_by(Dataset.id)
        session.execute(query.with_for_update(read=True)).all()


def _in_project(each: Input, project: str) -> Select[Any]:
    if each.job_id is not None:
        return select(Job.id).where(Job.id == each.job_id, Job.project == project)
    return select(Dataset.id).where(Dataset.id == each.dataset_id, Dataset.project == project)


def inputs_of(session: Session, job_id: str) -> list[Input]:
    """What a job uses, by argument."""
    query = select(JobInput).where(JobInput.job_id == job_id).order_by(JobInput.argument)
    return [
        Input(row.argument, row.uses_job, row.checkpoint, row.uses_dataset)
        for row in session.execute(query).scalars()
    ]


def input_states(session: Session, job_ids: Collection[str]) -> dict[str, list[InputState]]:
    """How the inputs of jobs stand, by job; jobs without inputs are left out."""
    if not job_ids:
        return {}
    found: dict[str, list[InputState]] = {}
    for row in session.execute(_INPUT_STATES, {"job_ids": list(job_ids)}):
        state = InputState(
            argument=row.argument,
            job_id=row.uses_job,
            checkpoint=row.checkpoint,
            dataset_id=row.uses_dataset,
            status=row.status,
            reason=row.reason or "",
            message=row.message or "",
            progress=row.progress or {},
            key=row.dataset_key if row.uses_dataset else row.key,
        )
        found.setdefault(row.user, []).append(state)
    return found


def _input_states() -> Select[*tuple[Any, ...]]:
    used = aliased(Job)
    wanted = or_(
        and_(JobInput.checkpoint.is_(None), Checkpoint.is_result.is_(True)),
        Checkpoint.name == JobInput.checkpoint,
    )
    return (
        select(
            JobInput.job_id.label("user"),
            JobInput.argument,
            JobInput.uses_job,
            JobInput.checkpoint,
            JobInput.uses_dataset,
            used.status,
            used.reason,
            used.message,
            used.progress,
            Checkpoint.key,
            Dataset.key.label("dataset_key"),
        )
        .outerjoin(used, used.id == JobInput.uses_job)
        .outerjoin(Checkpoint, and_(Checkpoint.job_id == JobInput.uses_job, wanted))
        .outerjoin(Dataset, Dataset.id == JobInput.uses_dataset)
        .where(JobInput.job_id.in_(bindparam("job_ids", expanding=True)))
        .order_by(JobInput.job_id, JobInput.argument)
    )


_INPUT_STATES = _input_states()


def awaits_input() -> ColumnElement[bool]:
    """SQL: whether a queued job waits for another job. What can never come has failed the job already."""
    used = aliased(Job)
    there = exists().where(
        used.id == JobInput.uses_job,
        or_(used.status == SUCCEEDED, and_(JobInput.checkpoint.is_not(None), used.status.in_(ENDED))),
    )
    return exists().where(JobInput.job_id == Job.id, JobInput.uses_job.is_not(None), ~there)


def dependents(
    session: Session,
    job_id: str,
    *statuses: str,
    reason: Reason | None = None,
    of_checkpoints: bool = False,
) -> list[str]:
    """Ids of the jobs in one of the statuses that use a job, those made first in front.

    Args:
        reason: only those that have their status for it.
        of_checkpoints: only those that use one of its checkpoints.
    """
    query = (
        select(Job.id)
        .join(JobInput, JobInput.job_id == Job.id)
        .where(JobInput.uses_job == job_id, Job.status.in_(statuses))
    )
    if reason is not None:
        query = query.where(Job.reason == reason)
    if of_checkpoints:
        query = query.where(JobInput.checkpoint.is_not(None))
    return list(session.execute(query.distinct().order_by(Job.id)).scalars())


def uses_itself(session: Session, job_id: str, used: str) -> bool:
    """Whether a job would wait for itself if it used another one."""
    seen: set[str] = set()
    pending: set[str] = {used}
    while pending:
        if job_id in pending:
            return True
        seen |= pending
        query = select(JobInput.uses_job).where(JobInput.job_id.in_(pending))
        pending = {found for found in session.execute(query).scalars() if found is not None} - seen
    return False


def failure_of(states: Iterable[InputState]) -> tuple[str, dict[str, Any]] | None:
    """Why a job with these inputs can never start: a sentence, and the same as data; None while it can."""
    for state in states:
        if state.broken:
            evidence = {
                "argument": state.argument,
                "job": state.job_id,
                "checkpoint": state.checkpoint or RESULT,
                "status": state.status,
                "reason": state.reason,
            }
            return f"{state.argument} needs {state.why()}", evidence
    return None


def waiting_for(states: Iterable[InputState]) -> str:
    """What a job with these inputs waits for; empty when all of them are there."""
    jobs = {state.job_id: state.why() for state in states if not state.ready}
    return f"waits for {' and '.join(jobs.values())}" if jobs else ""


def _ended(status: str) -> str:
    return {"succeeded": "succeeded", "failed": "failed", "cancelled": "was cancelled"}[status]
