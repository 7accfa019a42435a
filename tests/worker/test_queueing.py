"""Turns, backfill and fairness over many passes, with jobs that end between them."""

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from store.quotas import Quota
from worker.kind import Capacity, Request, Share
from worker.placement import Plan, plan

PROJECTS = ("a", "b", "c")


@dataclass
class Cluster:
    """Hosts that run what is placed on them until it is ended."""

    totals: dict[str, int]
    queue: list[Request]
    running: dict[str, tuple[Request, tuple[Share, ...]]] = field(default_factory=dict)

    def hosts(self) -> list[Capacity]:
        used = {name: set[int]() for name in self.totals}
        ends: dict[str, list[float]] = {name: [] for name in self.totals}
        for request, shares in self.running.values():
            for share in shares:
                used[share.host].update(share.devices)
                if request.limit_s is not None:
                    ends[share.host] += [request.limit_s] * len(share.devices)
        return [
            Capacity(name, "gpu", total, tuple(sorted(set(range(total)) - used[name])), tuple(ends[name]))
            for name, total in self.totals.items()
        ]

    def held(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for request, _ in self.running.values():
            held[request.project] += request.devices
        return held

    def step(self) -> Plan:
        result = plan(self.queue, self.hosts(), held=self.held())
        for request in self.queue:
            if request.job_id in result.placed:
                self.running[request.job_id] = (request, result.placed[request.job_id])
        self.queue = [request for request in self.queue if request.job_id in result.waiting]
        return result


def servable(request: Request, totals: dict[str, int]) -> bool:
    return sum(total >= request.devices_per_node for total in totals.values()) >= request.nodes


totals = st.lists(st.integers(1, 8), min_size=1, max_size=5).map(
    lambda sizes: {f"host{number}": size for number, size in enumerate(sizes)}
)
queues = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(1, 8),
        st.integers(0, 2),
        st.sampled_from(PROJECTS),
        st.none() | st.floats(1, 100),
    ),
    max_size=20,
).map(
    lambda rows: [
        Request(f"job{n}", "gpu", nodes, devices, priority, float(n), project, limit_s)
        for n, (nodes, devices, priority, project, limit_s) in enumerate(rows)
    ]
)


@given(totals, queues, st.data())
def test_every_job_that_hosts_could_serve_starts_in_the_end(
    totals: dict[str, int], queue: list[Request], data: st.DataObject
):
    cluster = Cluster(totals, queue)
    for _ in range(2 * len(queue) + 1):
        cluster.step()
        assert cluster.running or not [r for r in cluster.queue if servable(r, totals)]
        if not cluster.running:
            break
        del cluster.running[data.draw(st.sampled_from(sorted(cluster.running)))]
    assert not [request for request in cluster.queue if servable(request, totals)]


def test_a_big_job_starts_though_small_ones_keep_coming():
    cluster = Cluster({"x": 4, "y": 4}, [request(f"first{n}", 1) for n in range(8)])
    cluster.step()
    big = request("big", 4, at=1.0)
    cluster.queue = [big]
    for n in range(8):
        cluster.queue.append(request(f"later{n}", 1, at=2.0 + n))
        del cluster.running[f"first{n}"]
        cluster.step()
    assert "big" in cluster.running


@given(totals, queues)
def test_nobody_behind_the_first_that_waits_makes_it_wait_longer(
    totals: dict[str, int], queue: list[Request]
):
    half = len(queue) // 2
    cluster = Cluster(totals, [replace(request, project="a") for request in queue[:half]])
    cluster.step()
    cluster.queue += [replace(request, project="a") for request in queue[half:]]
    alone, everybody = deepcopy(cluster), cluster
    waiting = everybody.step().waiting
    head = next((r for r in queue if waiting.get(r.job_id, "").startswith("waiting for")), None)
    if head is None:
        return
    alone.queue = [r for r in alone.queue if turn(r) <= turn(head)]
    alone.step()
    assert due(head, everybody.hosts()) <= due(head, alone.hosts())


def turn(request: Request) -> tuple[int, float]:
    return (-request.priority, request.created_at)


def due(request: Request, hosts: list[Capacity]) -> tuple[float, int]:
    """When so many hosts are free for the request at the latest, or how many devices that depends on."""
    moments = []
    for host in hosts:
        if host.total >= request.devices_per_node:
            missing = max(request.devices_per_node - len(host.free), 0)
            known = [0.0, *sorted(host.ends)]
            moments.append((known[missing], 0) if missing < len(known) else (inf, missing))
    found = sorted(moments)[: request.nodes]
    return (max(moment for moment, _ in found), sum(missing for _, missing in found))


def test_a_smaller_job_uses_what_the_first_that_waits_cannot():
    cluster = Cluster(
        {"big": 4, "small": 2}, [request("runs", 3), request("head", 4, at=1.0), request("k", 2, at=2.0)]
    )
    cluster.step()
    assert cluster.running["k"][1] == (Share("small", (0, 1)),)
    assert [r.job_id for r in cluster.queue] == ["head"]


def test_a_job_that_ends_in_time_may_use_what_is_kept_for_another():
    cluster = Cluster({"x": 4}, [request("runs", 3, limit_s=60.0)])
    cluster.step()
    cluster.queue = [
        request("head", 4, at=1.0),
        request("endless", 1, at=2.0),
        request("long", 1, at=3.0, limit_s=61.0),
        request("short", 1, at=4.0, limit_s=59.0),
    ]
    assert set(cluster.step().placed) == {"short"}


def test_what_the_first_that_waits_will_need_of_its_limits_is_kept_for_it():
    queue = [request("head", 4, at=1.0), request("own", 1, at=2.0), request("other", 1, at=3.0, project="b")]
    hosts = [Capacity("x", "gpu", 4, (0,)), Capacity("y", "gpu", 2, (0, 1))]
    result = plan(queue, hosts, {"a": Quota(most_devices=4)})
    assert set(result.placed) == {"other"}
    assert result.waiting["own"].startswith("waiting behind job head")


@given(st.data())
def test_projects_that_always_have_jobs_waiting_come_to_hold_as_much(data: st.DataObject):
    cluster = Cluster({"x": 6, "y": 6}, [request(f"a{n}", 1, at=float(n)) for n in range(40)])
    cluster.step()
    cluster.queue += [
        request(f"{project}{n}", 1, project=project, at=100.0 + n) for n in range(40) for project in "bc"
    ]
    for _ in range(16):
        greedy = max(cluster.held().values())
        able = sorted(j for j, (r, _) in cluster.running.items() if cluster.held()[r.project] == greedy)
        del cluster.running[data.draw(st.sampled_from(able))]
        cluster.step()
    assert max(cluster.held().values()) - min(cluster.held()[project] for project in PROJECTS) <= 1


def test_a_project_with_fewer_devices_goes_first_among_equals_alone():
    queue = [
        request("old", 1, at=0.0),
        request("new", 1, at=9.0, project="b"),
        replace(request("urgent", 1, at=10.0), priority=1),
    ]
    one_free = [Capacity("x", "gpu", 8, (0,))]
    assert set(plan(queue[:2], one_free, held={"a": 3}).placed) == {"new"}
    assert set(plan(queue, one_free, held={"a": 3}).placed) == {"urgent"}


def request(
    job_id: str,
    devices: int,
    *,
    project: str = "a",
    at: float = 0.0,
    nodes: int = 1,
    limit_s: float | None = None,
) -> Request:
    return Request(job_id, "gpu", nodes, devices, 0, at, project, limit_s)
