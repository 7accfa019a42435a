"""Which attempts make room for a more urgent job: a pure function of the job, the hosts, what runs there."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from worker.kind import Capacity, Request

_Cost = tuple[float, ...]


@dataclass(frozen=True)
class Tenant:
    """An attempt that runs.

    Attributes:
        since: when it began (unix seconds).
        devices: how many devices it holds, by host.
    """

    job_id: str
    attempt: int
    priority: int
    since: float
    devices: Mapping[str, int]


def make_room(
    request: Request,
    hosts: Sequence[Capacity],
    tenants: Iterable[Tenant],
    *,
    coming: Mapping[str, int] | None = None,
    margin: int = 1,
) -> tuple[Tenant, ...]:
    """The attempts that have to stop so that the request can start; empty when it can without, or never.

    They are few, then of low priority, then young: in this order, host by host. Each of them is needed.

    Args:
        hosts: those that the request may be placed on.
        tenants: the attempts that may be asked.
        coming: how many devices of each host are free soon in any case.
        margin: so much lower than the request's has to be the priority of an attempt that is asked.
    """
    soon = coming or {}
    idle = {host.host: len(host.free) + soon.get(host.host, 0) for host in hosts}
    able = {host.host for host in hosts if host.total >= request.devices_per_node}
    lower = [tenant for tenant in tenants if tenant.priority + margin <= request.priority]
    if _suffices(idle, request):
        return ()
    fitting = sum(count >= request.devices_per_node for count in idle.values())
    alone = [tenant for tenant in lower if fitting + _hosts_won(tenant, idle, request) >= request.nodes]
    if alone:
        return (min(alone, key=_cost),)
    there: dict[str, list[Tenant]] = defaultdict(list)
    for tenant in lower:
        for name in tenant.devices:
            there[name].append(tenant)
    chosen: list[Tenant] = []
    left = dict(idle)
    offers: dict[str, tuple[Tenant, ...]] = {}
    changed: Iterable[str] = sorted(able)
    while not _suffices(left, request):
        for name in changed:
            offers.pop(name, None)
            missing = request.devices_per_node - left[name]
            stay = [tenant for tenant in there[name] if tenant not in chosen]
            if missing > 0 and (offer := _cheapest(name, missing, stay)):
                offers[name] = offer
        if not offers:
            return ()
        best = min(offers.values(), key=_total)
        chosen += best
        left = _without(left, best)
        changed = [name for tenant in best for name in tenant.devices if name in able]
    return _needed(chosen, idle, request)


def _suffices(idle: Mapping[str, int], request: Request) -> bool:
    return sum(count >= request.devices_per_node for count in idle.values()) >= request.nodes


def _hosts_won(tenant: Tenant, idle: Mapping[str, int], request: Request) -> int:
    """How many more hosts have devices enough once this attempt is gone."""
    held = ((idle[name], count) for name, count in tenant.devices.items() if name in idle)
    return sum(free < request.devices_per_node <= free + count for free, count in held)


def _without(idle: Mapping[str, int], leaving: Iterable[Tenant]) -> dict[str, int]:
    """How many devices are idle once these attempts are gone."""
    left = dict(idle)
    for tenant in leaving:
        for name, count in tenant.devices.items():
            if name in left:
                left[name] += count
    return left


def _cheapest(name: str, missing: int, tenants: Iterable[Tenant]) -> tuple[Tenant, ...] | None:
    """Those of a host's tenants that free so many of its devices at the least cost; None when all are not
    enough.
    """
    best: dict[int, tuple[Tenant, ...]] = {0: ()}  # by the number of devices, which counts up to `missing`
    for tenant in tenants:
        count = tenant.devices[name]
        for freed, before in sorted(best.items(), reverse=True):
            reached, with_it = min(freed + count, missing), (*before, tenant)
            if reached > freed and (reached not in best or _total(with_it) < _total(best[reached])):
                best[reached] = with_it
    return best.get(missing)


def _needed(chosen: Sequence[Tenant], idle: Mapping[str, int], request: Request) -> tuple[Tenant, ...]:
    """Those without which it is not enough: one over several hosts may have made others superfluous."""
    kept = list(chosen)
    for tenant in sorted(chosen, key=_cost, reverse=True):
        rest = [other for other in kept if other is not tenant]
        if _suffices(_without(idle, rest), request):
            kept = rest
    return tuple(kept)


def _cost(tenant: Tenant) -> _Cost:
    return (1, tenant.priority, -tenant.since)


def _total(tenants: Iterable[Tenant]) -> _Cost:
    return tuple(map(sum, zip(*map(_cost, tenants), strict=True))) or (0,)
