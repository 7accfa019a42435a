"""From the body of POST /jobs to a job that can run, or to everything that is wrong with it, said once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from api.confidential import secrets_problems
from api.explain import explain, records
from api.problems import invalid
from api.references import Resolved, inputs_in, resolve
from api.resources import DevicePlan, Offer, plan_devices
from api.schemas.jobs import JobRequest, Resources, ResourcesRequest
from api.schemas.webhooks import WebhookRequest
from api.sources import Sources
from api.webhooks import webhook_problems
from store.inputs import Input
from store.targets import Networks
from trainer.config import Reading, TaskConfig, read_config, task_problem
from trainer.config.estimate import Estimate
from trainer.config.names import tasks_with
from trainer.config.preflight import Checked, Roots, check_job, path_problems
from trainer.config.problems import Problem


@dataclass(frozen=True)
class Submission:
    """A request that can run as it is.

    Attributes:
        resolved: every argument; references as they are.
        local: the same with the folders of this machine in place of references, where there are any.
        config: what `local` says; None where that is still to be read.
        inputs: what it refers to.
        estimate: what it will take, where that was asked for.
        secrets: what it brings along, encrypted, by name.
    """

    request: JobRequest
    given: dict[str, Any]
    resolved: dict[str, Any]
    local: dict[str, Any]
    config: TaskConfig | None
    inputs: tuple[Input, ...]
    resources: Resources
    statistics: dict[str, Any]
    warnings: tuple[Problem, ...]
    estimate: Estimate | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)


def check(
    body: Mapping[str, Any],
    roots: Roots,
    offers: Callable[[], Sequence[Offer]],
    sources: Sources,
    networks: Networks = (),
) -> Submission:
    """Checks everything that can be known before a device is taken.

    Args:
        body: the JSON object of the request.
        roots: the folders that models and data may come from.
        offers: asked for what the hosts have.
        sources: the jobs and data sets that it may refer to.
        networks: where webhooks may lead beside public addresses.

    Raises:
        ApiError: 422 with all problems, each at its place below `body`.
    """
    if misplaced := _arguments_beside_config(body):
        raise invalid([misplaced])
    request, problems = _read_request(body)
    if webhook := _webhook(body):
        problems += webhook_problems(webhook, networks)
    reading, config_problems = _read_config(body)
    problems += config_problems
    devices: DevicePlan | None = None
    if request and reading and reading.config:
        devices = plan_devices(request.resources, reading, reading.config, offers)
        problems += devices.problems
    checked, references = None, None
    if reading:
        reading, references = _resolved(reading, sources)
        world_size = devices.world_size if devices else None
        checked, config_problems = _check_config(reading, references, roots, world_size)
        problems += config_problems
    if request is None or reading is None or checked is None or devices is None or problems:
        raise invalid(problems)
    resolved = checked.config.resolved()
    local = references.local(resolved) if references else resolved
    return Submission(
        request=request,
        given=reading.given,
        resolved=resolved,
        local=local,
        config=checked.config if local == resolved else None,
        inputs=inputs_in(resolved),
        resources=devices.resources,
        statistics=checked.statistics,
        warnings=(*_below_config((*reading.warnings, *checked.warnings)), *devices.warnings),
    )


def _arguments_beside_config(body: Mapping[str, Any]) -> Problem | None:
    """The problem of an argument file that was sent in place of a job."""
    names = [name for name in body if name not in JobRequest.model_fields and tasks_with(name)]
    if not names or "config" in body:
        return None
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    msg = f"got the arguments of a task ({shown}), expected them inside config"
    return Problem(("body",), msg, 'Send {"task": "finetune", "config": {...}}.')


def _read_request(body: Mapping[str, Any]) -> tuple[JobRequest | None, list[Problem]]:
    """The body's own fields; `config` is looked into elsewhere."""
    problems = secrets_problems(body.get("secrets"))
    unset = {name for name in JobRequest.model_fields if body.get(name) is None}
    unset |= {"secrets"} if problems else set()
    try:
        request = JobRequest.model_validate({name: body[name] for name in body if name not in unset})
    except ValidationError as error:
        problems += map(_explained, records(error))
        return None, problems
    return request, problems


def _webhook(body: Mapping[str, Any]) -> WebhookRequest | None:
    """The webhook of the body, whatever else is wrong there; None without one that can be read."""
    try:
        return WebhookRequest.model_validate(body.get("webhook"))
    except ValidationError:
        return None


def _explained(record: Mapping[str, Any]) -> Problem:
    name = str(record["loc"][-1])
    if record["type"] == "extra_forbidden" and tasks_with(name):
        loc = ("body", *record["loc"])
        return Problem(loc, "an argument of the task, expected inside config", "Move it into config.")
    return explain(record, ("body",), _known_fields(record["loc"]))


def _known_fields(loc: Sequence[str | int]) -> Iterable[str]:
    within: Mapping[object, type[BaseModel]] = {"resources": ResourcesRequest, "webhook": WebhookRequest}
    return within.get(loc[0], JobRequest).model_fields


def _read_config(body: Mapping[str, Any]) -> tuple[Reading | None, list[Problem]]:
    """The arguments of the job; None when there are none to read."""
    task, config = body.get("task"), body.get("config")
    if not isinstance(task, str):
        return None, []
    problem = task_problem(task)
    if problem is not None:
        return None, [replace(problem, loc=("body", *problem.loc))]
    if not isinstance(config, dict):
        return None, []
    return read_config(task, config), []


def _resolved(reading: Reading, sources: Sources) -> tuple[Reading, Resolved | None]:
    """The arguments with their references looked up; None when nothing could be read."""
    config = reading.config or reading.draft
    if config is None:
        return reading, None
    references = resolve(config, sources)
    whole = None if reading.config is None else references.config
    return replace(reading, config=whole, draft=references.config), references


def _check_config(
    reading: Reading, references: Resolved | None, roots: Roots, world_size: int | None
) -> tuple[Checked | None, list[Problem]]:
    """What the arguments refer to, and all that is wrong with them; None when they cannot be used at all."""
    if references is None:
        return None, list(_below_config(reading.problems))
    roots = replace(roots, references=references.folders)
    if reading.config is None:
        silent = {problem.loc[:1] for problem in reading.problems}
        unusable = [problem for problem in references.problems if problem.loc[:1] not in silent]
        found = [references.told(problem) for problem in path_problems(reading, roots)]
        return None, list(_below_config([*reading.problems, *unusable, *found]))
    checked = check_job(reading.config, roots, world_size=world_size)
    found = [references.told(problem) for problem in checked.problems]
    warnings = tuple(references.told(warning) for warning in checked.warnings)
    return replace(checked, warnings=warnings), list(_below_config([*references.problems, *found]))


def _below_config(problems: Iterable[Problem]) -> Iterable[Problem]:
    return (replace(problem, loc=("body", "config", *problem.loc)) for problem in problems)
