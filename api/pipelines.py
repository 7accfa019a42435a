"""Pipelines: all jobs are checked together, then stored together."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import ValidationError
from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from api.access import require_pipeline
from api.changes import remove_buried
from api.creation import checked, new_job
from api.explain import explain, records
from api.principal import Principal
from api.problems import ApiError, invalid
from api.references import OF_DATA, OF_JOBS, TEMPLATE
from api.schemas.pipelines import MOST_JOBS, STEP, Pipeline, PipelineRequest
from api.service import Service
from api.sources import Source, StoredSources, WithSiblings
from api.submission import Submission
from api.webhooks import prepare
from store import idempotency, wake
from store.errors import Conflict, IdempotencyConflict
from store.inputs import InputGone, input_states, waiting_for
from store.jobs import NewJob, new_job_id
from store.pipelines import (
    PipelineState,
    cancel_pipeline,
    create_pipeline,
    delete_pipeline,
    new_pipeline_id,
)
from store.states import Status
from store.tombstones import bury
from trainer.config.problems import Problem
from trainer.config.tasks import task_problem
from trainer.config.values import show

REFERRING = (*OF_JOBS, TEMPLATE, *OF_DATA)
"""Arguments that may refer to other jobs."""

_REFERENCE = re.compile(r"job:(?P<name>[^/]+)(?P<rest>/.*)?", re.DOTALL)
_STEP = re.compile(STEP)
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def document(service: Service, pipeline_id: str) -> Pipeline:
    """A pipeline as it is now. Raises ApiError (404)."""
    with service.database.reading() as session:
        state = require_pipeline(session, pipeline_id)
        return documents(session, [state])[0]


def documents(session: Session, states: Sequence[PipelineState]) -> list[Pipeline]:
    """Pipelines as the API shows them."""
    queued = [job.id for state in states for job in state.jobs if job.status == Status.queued]
    waits = {job_id: waiting_for(found) for job_id, found in input_states(session, queued).items()}
    return [Pipeline.of(state, waits) for state in states]


def post(
    service: Service, principal: Principal, body: Mapping[str, Any], key: str | None
) -> tuple[str, bool]:
    """The id of the pipeline of this body, and whether this call has made it.

    Raises:
        ApiError: 422 for a bad body; 409 for a key that came with another body.
    """
    canonical = b"pipeline:" + json.dumps(body, sort_keys=True, ensure_ascii=False).encode()
    try:
        if key is not None and (known := _known(service, principal, key, canonical)):
            return known, False
        plan = _Plan(service, principal, body)
        name, jobs = plan.checked()
        return _store(service, principal, name, jobs, key, canonical)
    except IdempotencyConflict as error:
        raise ApiError("idempotency-conflict", f"{error}.") from error
    except InputGone as error:
        detail = f"{str(error).capitalize()}. Send the pipeline again."
        raise ApiError("conflict", detail) from error


def _known(service: Service, principal: Principal, key: str, canonical: bytes) -> str | None:
    with service.database.reading() as session:
        job = idempotency.find_replay(session, principal.project, key, canonical)
        return None if job is None else job.pipeline_id


def _store(
    service: Service,
    principal: Principal,
    name: str | None,
    jobs: "Sequence[_Step]",
    key: str | None,
    canonical: bytes,
) -> tuple[str, bool]:
    pipeline_id = new_pipeline_id()
    new = [
        (step.job_id, _new_job(service, principal, step.submission, pipeline_id, step.name))
        for step in jobs
        if step.submission is not None
    ]
    with service.database.transaction() as session:
        if key is not None:
            first = new[0][0]
            known = idempotency.take_or_find(session, principal.project, key, canonical, first)
            if known is not None:
                return known.pipeline_id or "", False
        create_pipeline(
            session, pipeline_id, project=principal.project, name=name, created_by=principal.actor, jobs=new
        )
    wake.wake(service.settings.broker_url, wake.SCHEDULER)
    return pipeline_id, True


def _new_job(
    service: Service, principal: Principal, submission: Submission, pipeline_id: str, step: str
) -> NewJob:
    new = new_job(principal, submission, prepare(service.settings, submission.request.webhook))
    return replace(new, name=new.name or step, pipeline_id=pipeline_id, pipeline_step=step)


@dataclass
class _Step:
    """A job of a pipeline that is being checked. `index`: its place in the body."""

    index: int
    name: str
    body: dict[str, Any]
    job_id: str = field(default_factory=new_job_id)
    submission: Submission | None = None


class _Plan:
    """The jobs of a body, in an order in which what is used comes before what uses it."""

    def __init__(self, service: Service, principal: Principal, body: Mapping[str, Any]) -> None:
        self.service = service
        self.principal = principal
        self.body = body
        self.problems: list[Problem] = []
        self.steps: dict[str, _Step] = {}

    def checked(self) -> tuple[str | None, list[_Step]]:
        """The pipeline's name and its checked jobs. Raises ApiError (422) with everything that is wrong."""
        self._read()
        if self.problems:
            raise invalid(self.problems)
        order = self._ordered()
        if self.problems:
            raise invalid(self.problems)
        for step in order:  # ids are made in this order too
            step.job_id = new_job_id()
        siblings: dict[str, Source] = {}
        for step in order:
            self._check(step, siblings)
        if self.problems:
            raise invalid(self.problems)
        return self.body.get("name"), order

    def _read(self) -> None:
        """The members of the body but for what is inside the jobs."""
        jobs = self.body.get("jobs")
        shell = dict(self.body)
        if isinstance(jobs, list):
            del shell["jobs"]
        for record in _records(shell):
            if record["loc"][:1] != ("jobs",) or not isinstance(jobs, list):
                self.problems.append(explain(record, ("body",), PipelineRequest.model_fields))
        if not isinstance(jobs, list):
            return
        if not 1 <= len(jobs) <= MOST_JOBS:
            msg = f"got {len(jobs)} jobs, expected 1 to {MOST_JOBS}"
            self.problems.append(Problem(("body", "jobs"), msg, "Split it into several pipelines."))
            return
        for index, job in enumerate(jobs):
            self._read_job(index, job)

    def _read_job(self, index: int, job: Any) -> None:
        loc = ("body", "jobs", index)
        if not isinstance(job, dict):
            hint = 'Send {"id": "sft", "task": "finetune", "config": {...}}.'
            self.problems.append(Problem(loc, f"got {show(job)}, expected a JSON object", hint))
            return
        name = job.get("id")
        if not isinstance(name, str) or not _STEP.fullmatch(name):
            msg = (
                f"got {show(name)}, expected a name of letters a-z, digits, - and _ that begins with a letter"
            )
            self.problems.append(Problem((*loc, "id"), msg, "For example sft: others then write job:sft."))
        elif name in self.steps:
            msg = f"two jobs have the id {name!r}"
            self.problems.append(Problem((*loc, "id"), msg, "Give each job an id of its own."))
        else:
            self.steps[name] = _Step(index, name, {key: job[key] for key in job if key != "id"})

    def _ordered(self) -> list[_Step]:
        uses: dict[str, list[str]] = {}
        for step in self.steps.values():
            uses[step.name] = []
            for argument, name in _local_references(step.body):
                if name in self.steps:
                    uses[step.name].append(name)
                else:
                    loc = ("body", "jobs", step.index, "config", argument)
                    hint = f"Its jobs are {', '.join(self.steps)}; other jobs are named by their ids."
                    self.problems.append(Problem(loc, f"there is no job {name!r} in this pipeline", hint))
        try:
            return [self.steps[name] for name in TopologicalSorter(uses).static_order()]
        except CycleError as error:
            circle = " -> ".join(reversed(error.args[1]))
            loc = ("body", "jobs", self.steps[error.args[1][0]].index)
            msg = f"the jobs use each other in a circle: {circle}"
            self.problems.append(Problem(loc, msg, "Let one of them begin with a model that is there."))
            return []

    def _check(self, step: _Step, siblings: dict[str, Source]) -> None:
        if any(name not in siblings for _, name in _local_references(step.body)):
            return  # what it uses cannot be understood, which is told
        ids = {name: source.id for name, source in siblings.items()}
        body = _with_ids(step.body, ids)
        stored = StoredSources(self.service.database, self.service.artifacts, self.principal.project)
        sources = WithSiblings(stored, {source.id: source for source in siblings.values()})
        try:
            step.submission = checked(self.service, self.principal, body, sources=sources)
        except ApiError as error:
            if error.kind != "invalid":
                raise
            self.problems += (_placed(problem, step.index, ids) for problem in error.errors)
        task, config = step.body.get("task"), step.body.get("config")
        if step.submission is not None and step.submission.request.webhook is not None:
            self._check_webhook(step, step.submission.request.webhook.secret)
        if step.submission is not None:
            siblings[step.name] = Source(step.job_id, step.submission.request.task, step.submission.resolved)
        elif isinstance(task, str) and task_problem(task) is None and isinstance(config, dict):
            siblings[step.name] = Source(step.job_id, task, {"model_name_or_path": "", **config})

    def _check_webhook(self, step: _Step, secret: str | None) -> None:
        """A secret that the server makes is shown with its job, which the answer to a pipeline does not."""
        if secret is None:
            loc = ("body", "jobs", step.index, "webhook", "secret")
            self.problems.append(Problem(loc, "got none", "Choose one: whsec_ and 24 to 64 bytes in base64."))


def _records(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    try:
        PipelineRequest.model_validate({name: value for name, value in body.items() if value is not None})
    except ValidationError as error:
        yield from records(error)


def _local_references(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Arguments that refer to jobs of the same pipeline, and the names of these."""
    config = body.get("config")
    if not isinstance(config, dict):
        return
    for argument in REFERRING:
        value = config.get(argument)
        match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if match and not _ID.fullmatch(match["name"]):
            yield argument, match["name"]


def _with_ids(body: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """The body with the ids of jobs in place of their names in the pipeline."""
    config = body.get("config")
    if not isinstance(config, dict):
        return dict(body)
    changed = dict(config)
    for argument, name in _local_references(body):
        changed[argument] = config[argument].replace(f"job:{name}", f"job:{ids[name]}", 1)
    return {**body, "config": changed}


def _placed(problem: Problem, index: int, ids: Mapping[str, str]) -> Problem:
    """A problem of one job at its place in the pipeline, in the words of the pipeline."""
    msg, hint = problem.msg, problem.hint
    for name, job_id in ids.items():
        msg, hint = msg.replace(job_id, name), hint.replace(job_id, name)
    return Problem(("body", "jobs", index, *problem.loc[1:]), msg, hint)


def cancel(service: Service, principal: Principal, pipeline_id: str) -> Pipeline:
    """Stop all that is not finished. Raises ApiError (404)."""
    with service.database.transaction() as session:
        require_pipeline(session, pipeline_id)
        stopped = cancel_pipeline(session, pipeline_id, principal.actor)
    _announce(service, stopped)
    return document(service, pipeline_id)


def delete(service: Service, principal: Principal, pipeline_id: str) -> None:
    """Forget a pipeline with its jobs and their artifacts. Raises ApiError: 404, 409."""
    with service.database.transaction() as session:
        state = require_pipeline(session, pipeline_id)
        try:
            ids = delete_pipeline(session, pipeline_id, principal.actor)
        except Conflict as error:
            detail = f"{str(error).capitalize()}. Possible now: cancel."
            raise ApiError("conflict", detail, pipeline_status=state.status, allowed=["cancel"]) from error
        for job_id in ids:
            bury(session, f"jobs/{job_id}")
    for job_id in ids:
        remove_buried(service, f"jobs/{job_id}")
        with suppress(RedisError):  # without a broker the stream goes by itself, after its time
            service.log_stream.delete(job_id)
    _announce(service, ids)


def _announce(service: Service, job_ids: Sequence[str]) -> None:
    channels = [wake.job_channel(job_id) for job_id in job_ids]
    wake.wake(service.settings.broker_url, wake.SCHEDULER, *channels)
