"""Pipelines: jobs that were posted together, stored, stopped and forgotten together."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import uuid_utils
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session, defer

from store.clock import database_now
from store.errors import NotFound
from store.jobs import NewJob, add_job, delete_job, request_cancel
from store.pages import Page, cut_page, decode_cursor
from store.states import TERMINAL, Status
from store.tables import Job, JobInput, Pipeline

MAX_PAGE = 1000


class PipelineStatus(StrEnum):
    """Where a pipeline is as a whole."""

    queued = "queued"
    running = "running"
    succeeded = "succeeded"
    failed = "failed"
    cancelled = "cancelled"


@dataclass(frozen=True)
class PipelineState:
    """A pipeline and its jobs, in the order in which they were given; without their configs.

    Attributes:
        needs: by job id the steps of the pipeline that the job uses.
    """

    pipeline: Pipeline
    jobs: tuple[Job, ...]
    needs: dict[str, tuple[str, ...]]

    @property
    def status(self) -> PipelineStatus:
        """Queued until one job has started, running until all have ended, then the worst of their ends."""
        found = {Status(job.status) for job in self.jobs}
        if found == {Status.queued}:
            return PipelineStatus.queued
        if not found <= TERMINAL:
            return PipelineStatus.running
        ends = (PipelineStatus.failed, PipelineStatus.cancelled)
        return next((end for end in ends if Status(end) in found), PipelineStatus.succeeded)


def new_pipeline_id() -> str:
    """A new id; ids sort by the time they were made."""
    return str(uuid_utils.uuid7())


def create_pipeline(
    session: Session,
    pipeline_id: str,
    *,
    project: str,
    name: str | None,
    created_by: str,
    jobs: Sequence[tuple[str, NewJob]],
) -> None:
    """Store a pipeline with all its jobs, by id; what is used comes before what uses it.

    Raises: InputGone, QuotaExceeded as for single jobs; nothing is stored then.
    """
    now = database_now(session)
    session.add(Pipeline(id=pipeline_id, project=project, name=name, created_by=created_by, created_at=now))
    session.flush()
    for job_id, new in jobs:
        add_job(session, new, job_id=job_id)


def get_pipeline(session: Session, pipeline_id: str) -> PipelineState | None:
    """A pipeline as it is now, None when there is none of this id."""
    pipeline = session.get(Pipeline, pipeline_id, populate_existing=True)
    return None if pipeline is None else _states(session, [pipeline])[0]


def list_pipelines(
    session: Session, *, limit: int, project: str | None = None, cursor: str | None = None
) -> Page[PipelineState]:
    """Pipelines, newest first; without `project` those of all projects.

    Raises: InvalidCursor; ValueError for a limit outside 1..1000.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"limit: got {limit}, expected 1 to {MAX_PAGE}")
    query = select(Pipeline).order_by(Pipeline.created_at.desc(), Pipeline.id.desc()).limit(limit + 1)
    if project is not None:
        query = query.where(Pipeline.project == project)
    if cursor is not None:
        query = query.where(tuple_(Pipeline.created_at, Pipeline.id) < tuple_(*decode_cursor(cursor)))
    page = cut_page(session.execute(query).scalars().all(), limit)
    return Page(_states(session, page.items), page.next_cursor)


def _states(session: Session, pipelines: Sequence[Pipeline]) -> list[PipelineState]:
    ids = [pipeline.id for pipeline in pipelines]
    jobs: dict[str, list[Job]] = defaultdict(list)
    light = (defer(Job.config_given), defer(Job.config_resolved), defer(Job.warnings), defer(Job.estimate))
    query = select(Job).where(Job.pipeline_id.in_(ids)).options(*light).order_by(Job.id)
    for job in session.execute(query, execution_options={"populate_existing": True}).scalars():
        jobs[job.pipeline_id or ""].append(job)
    needs = _needs(session, {job.id: job.pipeline_step or "" for found in jobs.values() for job in found})
    return [PipelineState(each, tuple(jobs[each.id]), needs) for each in pipelines]


def _needs(session: Session, steps: dict[str, str]) -> dict[str, tuple[str, ...]]:
    query = select(JobInput.job_id, JobInput.uses_job).where(JobInput.job_id.in_(steps)).distinct()
    found: dict[str, list[str]] = defaultdict(list)
    for row in session.execute(query.order_by(JobInput.job_id, JobInput.uses_job)):
        if row.uses_job in steps:
            found[row.job_id].append(steps[row.uses_job])
    return {job_id: tuple(names) for job_id, names in found.items()}


def cancel_pipeline(session: Session, pipeline_id: str, actor: str = "") -> list[str]:
    """Stop all jobs of a pipeline that are not finished; their ids.

    Raises: NotFound.
    """
    ids = _held_jobs(session, pipeline_id)
    # the last ones first: a job that waits is cancelled itself, before what it waits for fails it
    unfinished = [job_id for job_id, status in reversed(ids) if status not in TERMINAL]
    for job_id in unfinished:
        request_cancel(session, job_id, actor)
    return unfinished


def delete_pipeline(session: Session, pipeline_id: str, actor: str = "") -> list[str]:
    """Forget all jobs of a pipeline, and so the pipeline; their ids. Their artifacts are the caller's to
    delete.

    Raises: NotFound; Conflict while one of its jobs is not finished, or is used by others that are not.
    """
    ids = [job_id for job_id, _ in _held_jobs(session, pipeline_id)]
    for job_id in reversed(ids):
        delete_job(session, job_id, actor)
    return ids


def _held_jobs(session: Session, pipeline_id: str) -> list[tuple[str, str]]:
    """Hold the rows of all jobs, what is used before what uses it, as everybody does."""
    query = select(Job.id, Job.status).where(Job.pipeline_id == pipeline_id).order_by(Job.id)
    rows = [(row.id, row.status) for row in session.execute(query.with_for_update())]
    if not rows and session.get(Pipeline, pipeline_id) is None:
        raise NotFound(f"there is no pipeline {pipeline_id!r}")
    return rows
