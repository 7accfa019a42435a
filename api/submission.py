"""From the body of POST /jobs to a job that can run, or to everything that is wrong with it, said once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from api.explain import explain
from api.problems import MOST_PROBLEMS, invalid
from api.resources import DevicePlan, Offer, plan_devices
from api.schemas.jobs import JobRequest, Resources, ResourcesRequest
from trainer.config import Reading, read_config, task_problem
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


def check(body: Mapping[str, Any], roots: Roots, offers: Callable[[], Sequence[Offer]]) -> Submission:
    """Checks everything that can be known before a device is taken.

    Args:
        body: the JSON object of the request.
        roots: the folders that models and data may come from.
        offers: asked for what the hosts have.

    Raises:
        ApiError: 422 with all problems, each at its place below `body`.
    """
    if misplaced := _arguments_beside_config(body):
        raise invalid([misplaced])
    request, problems = _read_request(body)
    reading, config_problems = _read_config(body)
    problems += config_problems
    devices: DevicePlan | None = None
    if request and reading and reading.config:
        devices = plan_devices(request.resources, reading, reading.config, offers)
        problems += devices.problems
    checked = None
    if reading:
        checked, config_problems = _check_config(reading, roots, devices.world_size if devices else None)
        problems += config_problems
    if request is None or reading is None or checked is None or devices is None or problems:
        raise invalid(problems)
    return Submission(
        request=request,
        given=reading.given,
        resolved=checked.config.resolved(),
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


def _check_config(
    reading: Reading, roots: Roots, world_size: int | None
) -> tuple[Checked | None, list[Problem]]:
    """What the arguments refer to, and all that is wrong with them; None when they cannot be used at all."""
    if reading.config is None:
        return None, list(_below_config([*reading.problems, *path_problems(reading, roots)]))
    checked = check_job(reading.config, roots, world_size=world_size)
    return checked, list(_below_config(checked.problems))


def _below_config(problems: Iterable[Problem]) -> Iterable[Problem]:
    return (replace(problem, loc=("body", "config", *problem.loc)) for problem in problems)
