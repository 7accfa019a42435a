"""The hosts with one kind of devices during a pass of the scheduler, and what waits for them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from worker.pool import Pool

_UNKNOWN_S = math.inf


@dataclass(frozen=True)
class Request:
    """The devices that one queued job waits for.

    Attributes:
        limit_s: the most seconds for which it holds them; None when nothing limits them.
        avoid: hosts that its last attempt failed on; it gets them only where too few others could serve it.
    """

    job_id: str
    device: str
    nodes: int
    devices_per_node: int
    priority: int
    created_at: float
    project: str = ""
    limit_s: float | None = None
    avoid: frozenset[str] = frozenset()

    @property
    def devices(self) -> int:
        return self.nodes * self.devices_per_node


@dataclass(frozen=True)
class Capacity:
    """One host that accepts jobs: `total` devices of a kind, of which those numbered in `free` are idle.

    Attributes:
        ends: in how many seconds at most devices in use are free again, for each of which that is known.
    """

    host: str
    device: str
    total: int
    free: tuple[int, ...]
    ends: tuple[float, ...] = ()


@dataclass(frozen=True)
class Share:
    """The devices that a job gets on one host."""

    host: str
    devices: tuple[int, ...]


class Kind:
    """The hosts with one kind of devices during a pass.

    Attributes:
        head: the first request that has to wait: hosts are kept for it.
    """

    def __init__(self, hosts: Sequence[Capacity]) -> None:
        self._hosts = hosts
        self._total = {host.host: host.total for host in hosts}
        self._free = {host.host: list(host.free) for host in hosts}
        self._ends = {host.host: list(host.ends) for host in hosts}
        self._pool = Pool({name: len(free) for name, free in self._free.items()})
        self._impossible: dict[tuple[int, int], str] = {}
        self._too_big: set[tuple[int, int, bool, frozenset[str]]] = set()
        self.head: Request | None = None
        self._kept = Pool({})
        self._kept_for_s = 0.0

    def impossible(self, request: Request) -> str:
        """Why no state of the registered hosts could serve the request; empty when one could."""
        shape = (request.nodes, request.devices_per_node)
        if shape not in self._impossible:
            self._impossible[shape] = _impossible(request, self._hosts)
        return self._impossible[shape]

    def take(self, request: Request) -> tuple[Share, ...]:
        """Give the request its whole gang; empty when it does not fit now, or would delay the head."""
        ends_in_time = request.limit_s is not None and request.limit_s <= self._kept_for_s
        avoid = self._avoided(request)
        shape = (request.nodes, request.devices_per_node, ends_in_time, avoid)
        if shape in self._too_big:
            return ()  # devices only become fewer during a pass
        chosen = self._pool.fitting(request.devices_per_node, request.nodes, avoid)
        if ends_in_time and len(chosen) < request.nodes:
            chosen += self._kept.fitting(request.devices_per_node, request.nodes - len(chosen), avoid)
        if len(chosen) < request.nodes:
            self._too_big.add(shape)
            return ()
        return tuple(self._give(request, name) for name in chosen)

    def wait(self, request: Request) -> str:
        """Why the request waits; the first one that does is the head, and is kept hosts."""
        if self.head is not None:
            return behind(request, self.head)
        self.head = request
        names = self._hosts_to_come(request)
        self._kept = Pool({name: len(self._free[name]) for name in names})
        due_s = max(self._due_s(name, request.devices_per_node) for name in names)
        self._kept_for_s = due_s if due_s < _UNKNOWN_S else 0.0
        for name in names:
            self._pool.remove(name)
        self._too_big.clear()
        used = sum(self._total.values()) - sum(map(len, self._free.values()))
        return _shortage(request, sum(self._total.values()), used) + _elsewhere(self._avoided(request))

    def able(self, request: Request) -> list[Capacity]:
        """The hosts that the request may be placed on, by name, with the devices that are idle now."""
        names = self._able(request)
        hosts = sorted((host for host in self._hosts if host.host in names), key=lambda host: host.host)
        return [replace(host, free=tuple(self._free[host.host])) for host in hosts]

    def _able(self, request: Request) -> set[str]:
        large = {name for name, total in self._total.items() if total >= request.devices_per_node}
        others = large - request.avoid
        return others if len(others) >= request.nodes else large

    def _avoided(self, request: Request) -> frozenset[str]:
        """Those of the hosts it should avoid that it can: without them, enough are left."""
        return request.avoid - self._able(request) if request.avoid else request.avoid

    def _give(self, request: Request, name: str) -> Share:
        free, count = self._free[name], request.devices_per_node
        share = Share(name, tuple(free[:count]))
        del free[:count]
        pool = self._pool if name in self._pool else self._kept
        pool.set(name, len(free))
        if request.limit_s is not None:
            self._ends[name] += [request.limit_s] * count
        return share

    def _hosts_to_come(self, request: Request) -> list[str]:
        """The hosts that will be free for the request first, as far as that is known."""
        count = request.devices_per_node

        def sooner(name: str) -> tuple[float, int, int, str]:
            idle = len(self._free[name])
            return (self._due_s(name, count), max(count - idle, 0), idle, name)

        return sorted(self._able(request), key=sooner)[: request.nodes]

    def _due_s(self, name: str, count: int) -> float:
        """In how many seconds so many devices of the host are free at the latest; infinite when unknown."""
        missing = count - len(self._free[name])
        if missing <= 0:
            return 0.0
        ends = sorted(self._ends[name])
        return ends[missing - 1] if missing <= len(ends) else _UNKNOWN_S


def behind(request: Request, first: Request) -> str:
    """Says that it is not this job's turn. Who sees the job need not know of those of other projects."""
    job = f"job {first.job_id}" if first.project == request.project else "a job of others"
    return f"waiting behind {job}, which is before it in the queue for devices of kind {request.device}"


def _impossible(request: Request, hosts: Sequence[Capacity]) -> str:
    """Why no state of the registered hosts could serve the request; empty when one could."""
    if not hosts:
        return f"no host with devices of kind {request.device} is up and takes jobs"
    large_enough = sum(host.total >= request.devices_per_node for host in hosts)
    if large_enough >= request.nodes:
        return ""
    largest = max(host.total for host in hosts)
    return (
        f"needs {_wanted(request)}, but {large_enough or 'none'} of the {len(hosts)} that are up "
        f"can offer that: the largest has {largest}"
    )


def _shortage(request: Request, total: int, used: int) -> str:
    usage = f"all {total} are in use" if used == total else f"{used} of {total} are in use"
    return f"waiting for {_wanted(request)}: {usage}"


def _elsewhere(avoid: frozenset[str]) -> str:
    return f" (not on {', '.join(sorted(avoid))}, where its last attempt failed)" if avoid else ""


def _wanted(request: Request) -> str:
    devices = f"{request.devices_per_node} device{'s' if request.devices_per_node > 1 else ''}"
    if request.nodes == 1:
        return f"{devices} on a host of kind {request.device}"
    return f"{devices} on each of {request.nodes} hosts of kind {request.device}"
