"""Running a job again with changes: the same job (retry) or a new one (clone)."""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.orm import Session

from api.access import require_job
from api.changes import announce, conflict, explained_conflict, remove_buried
from api.creation import Creation, checked, create_job, gone, new_job
from api.principal import Principal
from api.problems import invalid
from api.references import OF_DATA, OF_JOBS
from api.requests import read_request
from api.schemas.reruns import CloneRequest, RetryRequest
from api.service import Service
from api.sources import StoredSources
from api.submission import Submission
from store import reruns, tables
from store.checkpoints import list_checkpoints
from store.inputs import InputGone, uses_itself
from store.jobs import shown_ids
from store.states import Status
from store.tombstones import bury
from trainer.config.problems import Problem

FIXED = (
    *(name for name in OF_JOBS if name != "resume_from_checkpoint"),
    "output_dir",
    "lora",
    "lora_rank",
    "rslora",
    "target_modules",
    "prefix_tuning",
    "num_prefix_tokens",
    "prefix_projection",
    "prefix_projection_hidden_size",
)
"""Arguments that decide which tensors there are: a checkpoint belongs to their values."""
SMALL = ("nodes", "devices_per_node", "device", "max_retries", "timeout_s")
DEGREES = ("tensor_parallel_degree", "pipeline_parallel_degree", "sharding_parallel_degree", "sharding")


def retry_job(service: Service, principal: Principal, job_id: str, body: Mapping[str, Any]) -> tables.Job:
    """Queue a failed or cancelled job again, with what the body changes. Raises ApiError: 404, 409, 422."""
    given = {name: value for name, value in body.items() if value is not None}
    request = read_request(RetryRequest, given)
    with service.database.reading() as session:
        row = require_job(session, job_id)
        if row.status not in reruns.RETRYABLE:
            why = f"job {job_id} is {row.status}; only a failed or cancelled job can be retried"
            raise conflict(Status(row.status), why)
        kept = [checkpoint.name for checkpoint in list_checkpoints(session, job_id)]
        checked_again = reruns.can_have_inputs(session, job_id)
    rerun = reruns.Rerun(from_scratch=request.from_scratch)
    if given.keys() - {"from_scratch", "force"}:
        rerun = _rerun(service, principal, row, given, [] if request.from_scratch else kept)
    elif checked_again:  # what it uses may have become something else
        _rerun(service, principal, row, given | {"force": True}, [])
    buried: list[str] = []
    with service.database.transaction() as session, explained_conflict(session, job_id):
        if request.from_scratch:
            buried = _bury_checkpoints(session, job_id)
        try:
            job = reruns.retry_job(session, job_id, principal.actor, rerun)
        except InputGone as error:
            raise invalid([gone(error)]) from error
    for key in buried:
        remove_buried(service, key)
    announce(service, job_id)
    return job


def clone_job(
    service: Service, principal: Principal, job_id: str, body: Mapping[str, Any], key: str | None
) -> Creation:
    """A new job with the request of another one and what the body changes. Raises ApiError: 404, 409, 422."""
    given = {name: value for name, value in body.items() if value is not None}
    read_request(CloneRequest, given)
    with service.database.reading() as session:
        row = require_job(session, job_id)
        wanted = _request_of(row, given)
        wanted |= {"name": row.name, "priority": row.priority, "labels": row.labels}
    wanted |= {name: value for name, value in given.items() if name != "config"}
    return create_job(service, principal, wanted, key)


def _request_of(row: tables.Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """The body that would make the same job with the changes."""
    changed = given.get("config", {})
    resources = {"nodes": row.nodes, "devices_per_node": row.devices_per_node, "device": row.device}
    if any(name in changed for name in DEGREES):
        del resources["devices_per_node"]  # the new degrees say how many
    return {
        "task": row.task,
        "config": {**row.config_given, **changed},
        "resources": resources | given.get("resources", {}),
        "max_retries": given.get("max_retries", row.max_retries),
        "timeout_s": given.get("timeout_s", row.timeout_s),
        "force": given.get("force", False),
    }


def _rerun(
    service: Service, principal: Principal, row: tables.Job, given: Mapping[str, Any], kept: list[str]
) -> reruns.Rerun:
    """The checked changes. `kept`: the checkpoints that it goes on from."""
    sources = StoredSources(service.database, service.artifacts, row.project)
    submission = checked(service, principal, _request_of(row, given), sources=sources)
    problems = list(_fixed(row, submission, kept)) if kept else []
    with service.database.reading() as session:
        users = reruns.users_of_result(session, row.id)
        for each in submission.inputs:
            if each.job_id and uses_itself(session, row.id, each.job_id):
                msg = f"job {each.job_id} waits for this job"
                problems.append(Problem(("body", "config", each.argument), msg, "Name another job."))
    if users and not problems:
        problems = list(_promised(row, submission, users))
    if problems:
        raise invalid(problems)
    new = new_job(principal, submission)
    values = {
        "config_given": dict(new.config_given),
        "config_resolved": dict(new.config_resolved),
        "estimate": new.estimate,
        "warnings": [dict(warning) for warning in (*new.warnings, *_data_warnings(row, submission, kept))],
    }
    small = {name: getattr(new, name) for name in SMALL}
    told = {name: [getattr(row, name), value] for name, value in small.items() if getattr(row, name) != value}
    old = row.config_resolved
    arguments = {
        name: [old.get(name), value] for name, value in submission.resolved.items() if old.get(name) != value
    }
    return reruns.Rerun(
        values=values | small,
        inputs=submission.inputs,
        told={"changed": told | ({"config": arguments} if arguments else {})},
        from_scratch=bool(given.get("from_scratch")),
    )


def _fixed(row: tables.Job, submission: Submission, kept: list[str]) -> Iterator[Problem]:
    for name in FIXED:
        before, after = row.config_resolved.get(name), submission.resolved.get(name)
        if before != after:
            msg = f"cannot change from {before!r} to {after!r} while the job goes on from {kept[-1]}"
            hint = "Retry it with from_scratch, or clone it."
            yield Problem(("body", "config", name), msg, hint)


def _promised(row: tables.Job, submission: Submission, users: list[str]) -> Iterator[Problem]:
    """Changes of what the job makes, which jobs that wait for its result were checked against."""
    for name in FIXED:
        before, after = row.config_resolved.get(name), submission.resolved.get(name)
        if before != after and name != "output_dir":
            msg = f"cannot change from {before!r} to {after!r}: its result is for {shown_ids(users)}"
            yield Problem(("body", "config", name), msg, "Clone it, and the jobs that use it.")


def _data_warnings(row: tables.Job, submission: Submission, kept: list[str]) -> Iterator[dict[str, Any]]:
    for name in OF_DATA if kept else ():
        if row.config_resolved.get(name) != submission.resolved.get(name):
            msg = f"other data than before {kept[-1]}: the run goes on at the same place of the new data"
            hint = "Retry it with from_scratch to begin anew."
            yield Problem(("body", "config", name), msg, hint).as_dict()


def _bury_checkpoints(session: Session, job_id: str) -> list[str]:
    """Have the artifacts of all attempts so far removed; their keys are never used again."""
    row = require_job(session, job_id)
    keys = [f"jobs/{job_id}/checkpoints/{number}" for number in range(row.fresh_attempt, row.attempt + 1)]
    for key in keys:
        bury(session, key)
    return keys
