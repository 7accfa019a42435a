"""Which attempts make room for a more urgent job: a pure function of the job, the hosts, what runs there."""

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
    alone = [tenant for tenant in lower if _suffices(_without(idle, [tenant]), request)]
    if alone:
        return (min(alone, key=_cost),)
    chosen: list[Tenant] = []
    while not _suffices(left := _without(idle, chosen), request):
        missing = {
            name: request.devices_per_node - left[name]
            for name in able
            if left[name] < request.devices_per_node
        }
        others = [tenant for tenant in lower if tenant not in chosen]
        offers = [_cheapest(name, count, others) for name, count in sorted(missing.items())]
        possible = [offer for offer in offers if offer is not None]
        if not possible:
            return ()
        chosen += min(possible, key=_total)
    return _needed(chosen, idle, request)


def _suffices(idle: Mapping[str, int], request: Request) -> bool:
    return sum(count >= request.devices_per_node for count in idle.values()) >= request.nodes


def _without(idle: Mapping[str, int], leaving: Iterable[Tenant]) -> dict[str, int]:
    """How many devices are idle once these attempts are gone."""
    left = dict(idle)
    for tenant in leaving:
        for name, count in tenant.devices.items():
            if name in left:
                left[name] += count
    return left


def _cheapest(name: str, missing: int, tenants: Iterable[Tenant]) -> tuple[Tenant, ...] | None:
    """The tenants that free so many devices of the host at the least cost; None when all are not enough."""
    best: dict[int, tuple[Tenant, ...]] = {0: ()}  # by the number of devices, which counts up to `missing`
    for tenant in tenants:
        count = tenant.devices.get(name, 0)
        if count == 0:
            continue
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
