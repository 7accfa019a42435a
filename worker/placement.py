"""Which waiting job gets which devices: a pure function of the queue and of the free devices.

Rules, in this order:

1. Higher priority first, then the older job.
2. A job gets all the hosts it asks for at once, or none (a gang).
3. A job that must wait holds back the jobs behind it that want devices of the same kind, so a big job is
   never starved by small ones. A job that no registered host could ever serve holds back nobody.
4. A gang goes to the hosts with the fewest free devices that fit, so whole hosts stay free for big jobs.
5. A job that its project's limits do not allow now waits and holds back those of its own project behind it,
   so that small ones do not take its turn for ever; other projects go on. One that the limits can never allow
   holds back nobody.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from store.quotas import Quota


@dataclass(frozen=True)
class Request:
    """The devices that one queued job waits for."""

    job_id: str
    device: str
    nodes: int
    devices_per_node: int
    priority: int
    created_at: float
    project: str = ""

    @property
    def devices(self) -> int:
        return self.nodes * self.devices_per_node


@dataclass(frozen=True)
class Capacity:
    """One host that accepts jobs: `total` devices of a kind, of which those numbered in `free` are idle."""

    host: str
    device: str
    total: int
    free: tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """The devices that a job gets on one host."""

    host: str
    devices: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The outcome of one pass: what the jobs that start get, in order of start, and why the others wait."""

    placed: dict[str, tuple[Share, ...]] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)


def plan(
    requests: Iterable[Request], hosts: Sequence[Capacity], quotas: Mapping[str, Quota] | None = None
) -> Plan:
    """Place as many requests as the rules allow; no device is given out twice.

    Args:
        quotas: the limits of projects and what they use of them; a project without one has none.
    """
    result = Plan()
    left = dict(quotas or {})
    first_held: dict[str, str] = {}
    free = {(host.host, host.device): host.free for host in hosts}
    first_waiting: dict[str, Request] = {}
    of_kind: dict[str, list[Capacity]] = defaultdict(list)
    for host in hosts:
        of_kind[host.device].append(host)
    for request in sorted(requests, key=lambda r: (-r.priority, r.created_at, r.job_id)):
        candidates = of_kind[request.device]
        impossible = _impossible(request, candidates)
        quota = left.get(request.project, _UNLIMITED)
        if impossible := impossible or _never_allowed(request, quota):
            result.waiting[request.job_id] = impossible
        elif request.project in first_held:
            result.waiting[request.job_id] = (
                f"waiting behind job {first_held[request.project]}, for which project {request.project} "
                "has no room now"
            )
        elif held := _not_allowed_now(request, quota):
            first_held[request.project] = request.job_id
            result.waiting[request.job_id] = held
        elif request.device in first_waiting:
            result.waiting[request.job_id] = _behind(request, first_waiting[request.device])
        elif shares := _gang(request, candidates, free):
            result.placed[request.job_id] = shares
            left[request.project] = replace(
                quota, running=quota.running + 1, devices=quota.devices + request.devices
            )
            for share in shares:
                key = (share.host, request.device)
                free[key] = tuple(device for device in free[key] if device not in share.devices)
        else:
            first_waiting[request.device] = request
            result.waiting[request.job_id] = _shortage(request, candidates, free)
    return result


_UNLIMITED = Quota()


def _never_allowed(request: Request, quota: Quota) -> str:
    """Why the limits of the project forbid the job whatever else runs; empty when they do not."""
    if quota.most_devices is not None and request.devices > quota.most_devices:
        return (
            f"wants {_count(request.devices, 'device')}, "
            f"but project {request.project} may use {quota.most_devices} at most"
        )
    if quota.most_running == 0:
        return f"project {request.project} may run no jobs"
    return ""


def _not_allowed_now(request: Request, quota: Quota) -> str:
    """What of its project's the job has to wait for; empty when nothing."""
    project = f"project {request.project}"
    if quota.most_running is not None and quota.running >= quota.most_running:
        return f"{project} runs {_count(quota.running, 'job')} and may run {quota.most_running}"
    if quota.most_devices is None or quota.devices + request.devices <= quota.most_devices:
        return ""
    if quota.devices >= quota.most_devices:
        return f"{project} uses its {_count(quota.most_devices, 'device')}"
    return (
        f"{project} uses {quota.devices} of its {_count(quota.most_devices, 'device')}; "
        f"this job wants {request.devices}"
    )


def _behind(request: Request, first: Request) -> str:
    """That it is not this job's turn. Who sees the job need not know of those of other projects."""
    job = f"job {first.job_id}" if first.project == request.project else "a job of others"
    return f"waiting behind {job}, which is before it in the queue for devices of kind {request.device}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _gang(
    request: Request, hosts: Sequence[Capacity], free: dict[tuple[str, str], tuple[int, ...]]
) -> tuple[Share, ...]:
    """The shares of the whole gang; empty when it does not fit now."""
    count = request.devices_per_node
    fitting = sorted((len(idle), host.host) for host in hosts if len(idle := free[_key(host)]) >= count)
    if len(fitting) < request.nodes:
        return ()
    chosen = [name for _, name in fitting[: request.nodes]]
    return tuple(Share(name, free[(name, request.device)][:count]) for name in chosen)


def _impossible(request: Request, hosts: Sequence[Capacity]) -> str:
    """Why no state of the registered hosts could serve the request; empty when one could."""
    if not hosts:
        return f"no host with devices of kind {request.device} is up"
    large_enough = sum(host.total >= request.devices_per_node for host in hosts)
    if large_enough >= request.nodes:
        return ""
    largest = max(host.total for host in hosts)
    return (
        f"needs {_wanted(request)}, but {large_enough or 'none'} of the {len(hosts)} that are up "
        f"can offer that: the largest has {largest}"
    )


def _shortage(
    request: Request, hosts: Sequence[Capacity], free: dict[tuple[str, str], tuple[int, ...]]
) -> str:
    total = sum(host.total for host in hosts)
    used = total - sum(len(free[_key(host)]) for host in hosts)
    usage = f"all {total} are in use" if used == total else f"{used} of {total} are in use"
    return f"waiting for {_wanted(request)}: {usage}"


def _wanted(request: Request) -> str:
    devices = f"{request.devices_per_node} device{'s' if request.devices_per_node > 1 else ''}"
    if request.nodes == 1:
        return f"{devices} on a host of kind {request.device}"
    return f"{devices} on each of {request.nodes} hosts of kind {request.device}"


def _key(host: Capacity) -> tuple[str, str]:
    return (host.host, host.device)
