"""From the body of POST /jobs to a job that can run, or to everything that is wrong with it, said once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from api.explain import explain
from api.problems import MOST_PROBLEMS, invalid
from api.schemas.jobs import JobRequest, Resources, ResourcesRequest
from trainer.config import Reading, TaskConfig, read_config, task_problem
from trainer.config.names import tasks_with
from trainer.config.preflight import Checked, Roots, check_job, path_problems
from trainer.config.problems import Problem


@dataclass(frozen=True)
class Submission:
    """A request that can run as it is."""

    request: JobRequest
    given: dict[str, Any]
    resolved: dict[str, Any]
    resources: Resources
    statistics: dict[str, Any]
    warnings: tuple[Problem, ...]


def check(body: Mapping[str, Any], roots: Roots, default_device: Callable[[], str]) -> Submission:
    """Checks everything that can be known before a device is taken.

    Args:
        body: the JSON object of the request.
        roots: the folders that models and data may come from.
        default_device: the kind of device for a job that names none.

    Raises:
        ApiError: 422 with all problems, each at its place below `body`.
    """
    if misplaced := _arguments_beside_config(body):
        raise invalid([misplaced])
    request, problems = _read_request(body)
    reading, checked, config_problems = _check_config(body, roots)
    problems += config_problems
    resources = None
    if request is not None and reading is not None and checked is not None:
        resources, resource_problems = _plan(request.resources, reading, checked.config, default_device)
        problems += resource_problems
    if request is None or reading is None or checked is None or resources is None or problems:
        raise invalid(problems)
    return Submission(
        request=request,
        given=reading.given,
        resolved=checked.config.resolved(),
        resources=resources,
        statistics=checked.statistics,
        warnings=tuple(_below_config((*reading.warnings, *checked.warnings))),
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
    problems = []
    if body.get("webhook") is not None:
        msg = "got a webhook, which is not available in this version"
        problems.append(Problem(("body", "webhook"), msg, "Leave it out and follow GET /jobs/{id}/events."))
    unset = {"webhook"} | {name for name in JobRequest.model_fields if body.get(name) is None}
    try:
        request = JobRequest.model_validate({name: body[name] for name in body if name not in unset})
    except ValidationError as error:
        for record in error.errors(include_url=False)[: MOST_PROBLEMS + 1]:
            problems.append(_explained(record))
        return None, problems
    return request, problems


def _explained(record: Mapping[str, Any]) -> Problem:
    name = str(record["loc"][-1])
    if record["type"] == "extra_forbidden" and tasks_with(name):
        loc = ("body", *record["loc"])
        return Problem(loc, "an argument of the task, expected inside config", "Move it into config.")
    return explain(record, ("body",), _known_fields(record["loc"]))


def _known_fields(loc: Sequence[str | int]) -> Iterable[str]:
    return (ResourcesRequest if loc[0] == "resources" else JobRequest).model_fields


def _check_config(
    body: Mapping[str, Any], roots: Roots
) -> tuple[Reading | None, Checked | None, list[Problem]]:
    task, config = body.get("task"), body.get("config")
    if not isinstance(task, str):
        return None, None, []
    problem = task_problem(task)
    if problem is not None:
        return None, None, [replace(problem, loc=("body", *problem.loc))]
    if not isinstance(config, dict):
        return None, None, []
    reading = read_config(task, config)
    if reading.config is None:
        problems = [*reading.problems, *path_problems(reading, roots)]
        return reading, None, list(_below_config(problems))
    checked = check_job(reading.config, roots)
    return reading, checked, list(_below_config(checked.problems))


def _below_config(problems: Iterable[Problem]) -> Iterable[Problem]:
    return (replace(problem, loc=("body", "config", *problem.loc)) for problem in problems)


def _plan(
    request: ResourcesRequest | None, reading: Reading, config: TaskConfig, default_device: Callable[[], str]
) -> tuple[Resources, list[Problem]]:
    """The devices of the job, which must be as many and of the kind that its config says."""
    request = request or ResourcesRequest.model_validate({})
    needed = config.world_size()
    each = request.devices_per_node or max(needed // request.nodes, 1)
    problems = []
    if request.nodes * each != needed:
        msg = f"got {request.nodes} node(s) x {each} device(s) = {request.nodes * each}, expected {needed}"
        hint = f"The parallel degrees of the config multiply to {needed}; change them or the resources."
        problems.append(Problem(("body", "resources"), msg, hint))
    named = _device_of(reading)
    if request.device and named and request.device != named:
        msg = f"got {request.device!r}, but the config's device is {named!r}"
        problems.append(Problem(("body", "resources", "device"), msg, "Name the device in one place only."))
    device = request.device or named or default_device()
    return Resources(nodes=request.nodes, devices_per_node=each, device=device), problems


def _device_of(reading: Reading) -> str | None:
    """The kind of device that the argument file itself names."""
    device = str(reading.given.get("device") or "").partition(":")[0]
    return device if device in ("cpu", "gpu") else None
