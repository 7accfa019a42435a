from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from store.quotas import Quota
from worker.kind import Capacity, Request, Share
from worker.placement import plan

KINDS = ("cpu", "gpu")


@st.composite
def capacities(draw: st.DrawFn) -> list[Capacity]:
    hosts = []
    for number in range(draw(st.integers(0, 6))):
        total = draw(st.integers(1, 8))
        free = draw(st.sets(st.integers(0, total - 1)))
        hosts.append(Capacity(f"host{number}", draw(st.sampled_from(KINDS)), total, tuple(sorted(free))))
    return hosts


requests = st.lists(
    st.builds(
        Request,
        job_id=st.uuids().map(str),
        device=st.sampled_from(KINDS),
        nodes=st.integers(1, 4),
        devices_per_node=st.integers(1, 9),
        priority=st.integers(-2, 2),
        created_at=st.floats(0, 100),
    ),
    max_size=20,
    unique_by=lambda request: request.job_id,
)


def rank(request: Request) -> tuple:
    return (-request.priority, request.created_at, request.job_id)


def fits(request: Request, hosts: list[Capacity], devices_of: dict[str, int]) -> bool:
    able = [h for h in hosts if h.device == request.device and devices_of[h.host] >= request.devices_per_node]
    return len(able) >= request.nodes


@given(requests, capacities())
def test_no_device_is_given_out_twice_and_only_free_ones_are(queue: list[Request], hosts: list[Capacity]):
    free = {(host.host, device) for host in hosts for device in host.free}
    given_out = [
        (s.host, d) for shares in plan(queue, hosts).placed.values() for s in shares for d in s.devices
    ]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= free


@given(requests, capacities())
def test_a_job_gets_its_whole_gang_on_hosts_of_its_kind_or_waits_with_a_reason(
    queue: list[Request], hosts: list[Capacity]
):
    kinds = {host.host: host.device for host in hosts}
    result = plan(queue, hosts)
    assert set(result.placed) | set(result.waiting) == {request.job_id for request in queue}
    assert not set(result.placed) & set(result.waiting)
    assert all(result.waiting.values())
    for request in queue:
        shares = result.placed.get(request.job_id)
        if shares is not None:
            assert len({share.host for share in shares}) == len(shares) == request.nodes
            assert all(len(share.devices) == request.devices_per_node for share in shares)
            assert all(kinds[share.host] == request.device for share in shares)


@given(requests, capacities())
def test_a_job_passes_only_who_could_not_start_in_its_place(queue: list[Request], hosts: list[Capacity]):
    result = plan(queue, hosts)
    waiting = [r for r in queue if r.job_id in result.waiting]
    idle = {host.host: len(host.free) for host in hosts}
    placed = sorted((r for r in queue if r.job_id in result.placed), key=rank)
    for request in placed:
        assert not [w for w in waiting if rank(w) < rank(request) and fits(w, hosts, idle)]
        for share in result.placed[request.job_id]:
            idle[share.host] -= len(share.devices)


@given(requests, capacities())
def test_the_first_job_in_the_queue_starts_whenever_it_fits(queue: list[Request], hosts: list[Capacity]):
    free = {host.host: len(host.free) for host in hosts}
    for kind in KINDS:
        of_kind = sorted((request for request in queue if request.device == kind), key=rank)
        if of_kind:
            placed = plan(queue, hosts).placed
            assert (of_kind[0].job_id in placed) == fits(of_kind[0], hosts, free)


@given(requests, capacities())
def test_the_order_in_which_jobs_and_hosts_are_listed_does_not_matter(
    queue: list[Request], hosts: list[Capacity]
):
    assert plan(queue, hosts) == plan(queue[::-1], hosts[::-1])


def request(job_id: str, devices: int = 1, *, nodes: int = 1, priority: int = 0, at: float = 0.0) -> Request:
    return Request(job_id, "gpu", nodes, devices, priority, at)


def test_a_small_job_goes_where_the_fewest_devices_are_free():
    hosts = [Capacity("a", "gpu", 8, tuple(range(8))), Capacity("b", "gpu", 8, (5, 6, 7))]
    assert plan([request("j", 2)], hosts).placed == {"j": (Share("b", (5, 6)),)}


def test_a_waiting_job_is_told_what_it_waits_for():
    full, half = Capacity("a", "gpu", 2, ()), Capacity("a", "gpu", 2, (1,))
    behind = "waiting behind job j, which is before it in the queue for devices of kind gpu"
    assert plan([request("j")], [full]).waiting == {
        "j": "waiting for 1 device on a host of kind gpu: all 2 are in use"
    }
    assert plan([request("j", 2), request("k", at=1.0)], [half]).waiting == {
        "j": "waiting for 2 devices on a host of kind gpu: 1 of 2 are in use",
        "k": behind,
    }


def test_who_waits_is_told_the_ids_of_jobs_of_its_own_project_alone():
    queue = [
        Request(job_id, "gpu", 1, 1, 0, at, project)
        for at, (job_id, project) in enumerate([("first", "a"), ("own", "a"), ("other", "b")])
    ]
    waiting = plan(queue, [Capacity("h", "gpu", 2, ())]).waiting
    assert waiting["own"].startswith("waiting behind job first, which is before it in the queue")
    assert waiting["other"].startswith("waiting behind a job of others, which is before it in the queue")


def test_a_job_that_no_host_can_serve_says_so_and_holds_back_nobody():
    result = plan(
        [request("big", 4, nodes=2), request("small", at=1.0)], [Capacity("a", "gpu", 4, (0, 1, 2, 3))]
    )
    assert result.placed == {"small": (Share("a", (0,)),)}
    assert result.waiting == {
        "big": "needs 4 devices on each of 2 hosts of kind gpu, "
        "but 1 of the 1 that are up can offer that: the largest has 4"
    }
    assert plan([request("j")], []).waiting == {"j": "no host with devices of kind gpu is up and takes jobs"}


class TestQuotas:
    """Projects get no more than their limits, and hold each other back no more than needed."""

    projects = st.sampled_from(["a", "b", "free"])
    limit = st.none() | st.integers(0, 6)
    quota = st.builds(
        Quota, most_running=limit, most_devices=limit, running=st.integers(0, 3), devices=st.integers(0, 6)
    )
    queue = st.lists(
        st.tuples(projects, st.integers(1, 2), st.integers(1, 4), st.integers(-1, 1)), max_size=15
    )

    @staticmethod
    def requests_of(queue: list[tuple[str, int, int, int]]) -> list[Request]:
        return [
            Request(f"job{n}", "cpu", nodes, devices, priority, float(n), project)
            for n, (project, nodes, devices, priority) in enumerate(queue)
        ]

    @given(queue, capacities(), st.fixed_dictionaries({"a": quota, "b": quota}))
    def test_no_project_exceeds_its_limits(
        self, queue: list[tuple[str, int, int, int]], hosts: list[Capacity], quotas: dict[str, Quota]
    ):
        requests = {request.job_id: request for request in self.requests_of(queue)}
        placed = [requests[job_id] for job_id in plan(requests.values(), hosts, quotas).placed]
        for name, quota in quotas.items():
            mine = [request for request in placed if request.project == name]
            if mine and quota.most_running is not None:
                assert quota.running + len(mine) <= quota.most_running
            if mine and quota.most_devices is not None:
                assert quota.devices + sum(request.devices for request in mine) <= quota.most_devices

    @given(queue, capacities(), st.fixed_dictionaries({"a": quota, "b": quota}))
    def test_who_has_no_limit_is_placed_as_if_those_who_wait_for_theirs_were_not_there(
        self, queue: list[tuple[str, int, int, int]], hosts: list[Capacity], quotas: dict[str, Quota]
    ):
        requests = self.requests_of(queue)
        result = plan(requests, hosts, quotas)
        held = {job_id for job_id, why in result.waiting.items() if "project" in why}
        assert plan([r for r in requests if r.job_id not in held], hosts, quotas).placed == result.placed

    @given(queue, capacities())
    def test_without_limits_nothing_changes(
        self, queue: list[tuple[str, int, int, int]], hosts: list[Capacity]
    ):
        requests = self.requests_of(queue)
        assert plan(requests, hosts, {"a": Quota()}) == plan(requests, hosts)

    def test_the_reason_names_the_project_and_its_limit(self):
        host = Capacity("h", "cpu", 8, tuple(range(8)))
        queue = self.requests_of([("a", 1, 2, 0), ("a", 1, 1, 0), ("b", 1, 1, 0), ("a", 1, 9, 1)])
        full = plan(queue[:3], [host], {"a": Quota(most_devices=3, running=1, devices=3)})
        assert full.waiting["job0"] == "project a uses its 3 devices"
        assert full.waiting["job1"].startswith("waiting behind job job0")
        assert set(full.placed) == {"job2"}
        part = plan(queue[:1], [host], {"a": Quota(most_devices=3, running=1, devices=2)})
        assert part.waiting["job0"] == "project a uses 2 of its 3 devices; this job wants 2"
        many = plan(queue[:1], [host], {"a": Quota(most_running=1, running=1, devices=1)})
        assert many.waiting["job0"] == "project a runs 1 job and may run 1"

    def test_what_can_never_be_allowed_holds_back_nobody(self):
        host = Capacity("h", "cpu", 8, tuple(range(8)))
        queue = self.requests_of([("a", 2, 2, 1), ("a", 1, 1, 0)])
        hosts = [host, Capacity("i", "cpu", 8, tuple(range(8)))]
        result = plan(queue, hosts, {"a": Quota(most_devices=3)})
        assert result.waiting == {"job0": "wants 4 devices, but project a may use 3 at most"}
        assert set(result.placed) == {"job1"}


def test_a_job_waits_for_another_host_than_the_one_it_failed_on_where_there_is_one():
    wanted = Request("again", "gpu", 1, 1, 0, 0.0, avoid=frozenset({"a"}))
    idle, full = Capacity("a", "gpu", 1, (0,)), Capacity("b", "gpu", 1, ())
    assert plan([wanted], [idle, replace(full, free=(0,))]).placed == {"again": (Share("b", (0,)),)}
    assert plan([wanted], [idle]).placed == {"again": (Share("a", (0,)),)}
    result = plan([wanted, Request("next", "gpu", 1, 1, 0, 1.0)], [idle, full])
    assert result.placed == {"next": (Share("a", (0,)),)}
    assert result.waiting["again"] == (
        "waiting for 1 device on a host of kind gpu: 1 of 2 are in use "
        "(not on a, where its last attempt failed)"
    )
    assert result.heads == [(wanted, [full])]
