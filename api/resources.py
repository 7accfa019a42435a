"""The devices of a job: as many as its config needs or a multiple of it, of a kind that some host has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from api.schemas.jobs import MOST_DEVICES, Resources, ResourcesRequest
from trainer.config import Reading, TaskConfig
from trainer.config.problems import Problem
from trainer.config.topology import misfit

RESOURCES = ("body", "resources")


@dataclass(frozen=True)
class Offer:
    """What one registered host has: so many devices of a kind, busy or not.

    Attributes:
        memory: bytes of each device that tells them.
    """

    device: str
    devices: int
    memory: tuple[int, ...] = ()


@dataclass(frozen=True)
class DevicePlan:
    """What a job asks the scheduler for, and what is to be said about it."""

    resources: Resources
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    @property
    def world_size(self) -> int | None:
        """Devices on all hosts; None when they cannot be had like that."""
        return None if self.problems else self.resources.nodes * self.resources.devices_per_node


def plan_devices(
    request: ResourcesRequest | None,
    reading: Reading,
    config: TaskConfig,
    offers: Callable[[], Sequence[Offer]],
) -> DevicePlan:
    """The devices of a job. What the request leaves open follows from the config.

    Args:
        offers: asked for what the hosts have.
    """
    request = request or ResourcesRequest.model_validate({})
    hosts = offers()
    each = request.devices_per_node or max(-(-config.world_size() // request.nodes), 1)
    named = _device_of(reading)
    device = request.device or named or _default_device(hosts)
    found = (_misfit(request.nodes, each, config), _too_many(each))
    problems = [problem for problem in found if problem]
    if request.device and named and request.device != named:
        msg = f"got {request.device!r}, but the config's device is {named!r}"
        problems.append(Problem((*RESOURCES, "device"), msg, "Name the device in one place only."))
    resources = Resources(nodes=request.nodes, devices_per_node=each, device=device)
    warning = None if problems else _nowhere(resources, hosts)
    return DevicePlan(resources, tuple(problems), (warning,) if warning else ())


def _misfit(nodes: int, each: int, config: TaskConfig) -> Problem | None:
    """The problem of another number of devices, on all hosts, than the config can use."""
    problem = misfit(config, nodes * each)
    if problem is None:
        return None
    if nodes == 1:
        return Problem((*RESOURCES, "devices_per_node"), problem.msg, problem.hint)
    msg = f"{nodes} nodes with {each} devices each: {problem.msg}"
    return Problem((*RESOURCES, "nodes"), msg, problem.hint)


def _too_many(each: int) -> Problem | None:
    if each <= MOST_DEVICES:
        return None
    msg = f"the parallel degrees need {each} devices, expected at most {MOST_DEVICES}"
    return Problem(RESOURCES, msg, "Lower the parallel degrees.")


def _nowhere(wanted: Resources, hosts: Sequence[Offer]) -> Problem | None:
    """The warning that no host that is known could take the job. One may still join, so it is no problem."""
    of_kind = [host.devices for host in hosts if host.device == wanted.device]
    large = sum(devices >= wanted.devices_per_node for devices in of_kind)
    if not hosts or large >= wanted.nodes:
        return None
    asked = f"{wanted.devices_per_node} {wanted.device} device{'s' if wanted.devices_per_node > 1 else ''}"
    if wanted.nodes > 1:
        able = large or "none"
        msg = f"asks for {wanted.nodes} hosts with {asked} each, but {able} of those known can offer that"
        return Problem(RESOURCES, msg, "It waits until such hosts join.")
    if of_kind:
        msg = f"asks for a host with {asked}, but the largest that is known has {max(of_kind)}"
    else:
        msg = f"asks for a host with {asked}, but none is known"
    return Problem(RESOURCES, msg, "It waits until such a host joins.")


def _device_of(reading: Reading) -> str | None:
    """The kind of device that the argument file itself names."""
    device = str(reading.given.get("device") or "").partition(":")[0]
    return device if device in ("cpu", "gpu") else None


def _default_device(hosts: Sequence[Offer]) -> str:
    """gpu where some host has one: a job that does not say wants the faster kind."""
    return "gpu" if any(host.device == "gpu" for host in hosts) else "cpu"
