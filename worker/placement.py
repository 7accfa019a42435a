"""Which waiting job gets which devices: a pure function of the queue and of the devices.

Rules, in this order:

1. Higher priority first; of equal priority, the project that holds fewer devices; then the older job.
2. A job gets all the hosts it asks for at once, or none (a gang).
3. For the first job of a kind of devices that has to wait, the head, the hosts that it will get are kept. A
   job behind it may start on other hosts; on those only when, by its time limit, it ends before they are due
   to the head. A job that no registered host could ever serve holds back nobody.
4. A gang goes to the hosts with the fewest free devices that fit, so whole hosts stay free for big jobs.
5. A job that its project's limits do not allow now waits and holds back those of its own project behind it,
   so that small ones do not take its turn for ever; other projects go on. What the head will need of them is
   kept for it. One that the limits can never allow holds back nobody.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from store.quotas import Quota
from worker.kind import Capacity, Kind, Request, Share, behind


@dataclass(frozen=True)
class Plan:
    """The outcome of one pass: what the jobs that start get, in order of start, and why the others wait.

    `heads`: the first request of each kind that has to wait, and the hosts that it may be placed on, as this
    pass leaves them.
    """

    placed: dict[str, tuple[Share, ...]] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    heads: list[tuple[Request, list[Capacity]]] = field(default_factory=list)


def plan(
    requests: Iterable[Request],
    hosts: Sequence[Capacity],
    quotas: Mapping[str, Quota] | None = None,
    held: Mapping[str, int] | None = None,
) -> Plan:
    """Place as many requests as the rules allow; no device is given out twice.

    Args:
        quotas: the limits of projects and what they use of them; a project without one has none.
        held: how many devices each project holds now; one that is not named holds none.
    """
    result = Plan()
    left = dict(quotas or {})
    holds = dict(held or {})
    first_held: dict[str, str] = {}
    heads: dict[str, list[Request]] = defaultdict(list)
    by_kind: dict[str, list[Capacity]] = defaultdict(list)
    for host in hosts:
        by_kind[host.device].append(host)
    kinds = defaultdict(lambda: Kind([]), {device: Kind(alike) for device, alike in by_kind.items()})
    for request in _in_turn(requests, holds):
        kind = kinds[request.device]
        quota = left.get(request.project, _UNLIMITED)
        if never := kind.impossible(request) or _never_allowed(request, quota):
            result.waiting[request.job_id] = never
        elif request.project in first_held:
            result.waiting[request.job_id] = (
                f"waiting behind job {first_held[request.project]}, for which project {request.project} "
                "has no room now"
            )
        elif not_now := _not_allowed_now(request, quota):
            first_held[request.project] = request.job_id
            result.waiting[request.job_id] = not_now
        elif _not_allowed_now(request, _with(quota, heads[request.project])):
            result.waiting[request.job_id] = behind(request, heads[request.project][0])
        elif shares := kind.take(request):
            result.placed[request.job_id] = shares
            holds[request.project] = holds.get(request.project, 0) + request.devices
            left[request.project] = _with(quota, [request])
        else:
            result.waiting[request.job_id] = kind.wait(request)
            if kind.head is request:
                heads[request.project].append(request)
    result.heads.extend((kind.head, kind.able(kind.head)) for _, kind in sorted(kinds.items()) if kind.head)
    return result


def _in_turn(requests: Iterable[Request], holds: Mapping[str, int]) -> Iterator[Request]:
    """The requests in the order of their turns. `holds` may grow between two of them: that counts at once."""
    levels: dict[int, dict[str, list[Request]]] = defaultdict(lambda: defaultdict(list))
    for request in requests:
        levels[request.priority][request.project].append(request)
    for priority in sorted(levels, reverse=True):
        queues = {
            project: sorted(queue, key=lambda r: (r.created_at, r.job_id), reverse=True)
            for project, queue in levels[priority].items()
        }
        turns = [_turn(queue, holds) for queue in queues.values()]
        heapq.heapify(turns)
        while turns:
            project = heapq.heappop(turns)[-1]
            queue = queues[project]
            yield queue.pop()
            if queue:
                heapq.heappush(turns, _turn(queue, holds))


def _turn(queue: Sequence[Request], holds: Mapping[str, int]) -> tuple[int, float, str, str]:
    """Sorts the projects of one priority by whose turn it is."""
    oldest = queue[-1]
    return (holds.get(oldest.project, 0), oldest.created_at, oldest.job_id, oldest.project)


_UNLIMITED = Quota()


def _with(quota: Quota, jobs: Sequence[Request]) -> Quota:
    """The quota when these jobs run, too."""
    return replace(
        quota,
        running=quota.running + len(jobs),
        devices=quota.devices + sum(job.devices for job in jobs),
    )


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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
