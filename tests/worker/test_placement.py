from hypothesis import given
from hypothesis import strategies as st

from worker.placement import Capacity, Request, Share, plan

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
def test_no_job_passes_a_servable_one_that_is_before_it_in_the_queue_of_its_kind(
    queue: list[Request], hosts: list[Capacity]
):
    totals = {host.host: host.total for host in hosts}
    result = plan(queue, hosts)
    waiting = [r for r in queue if r.job_id in result.waiting and fits(r, hosts, totals)]
    for request in queue:
        if request.job_id in result.placed:
            assert not [w for w in waiting if w.device == request.device and rank(w) < rank(request)]


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


def test_a_job_that_no_host_can_serve_says_so_and_holds_back_nobody():
    result = plan(
        [request("big", 4, nodes=2), request("small", at=1.0)], [Capacity("a", "gpu", 4, (0, 1, 2, 3))]
    )
    assert result.placed == {"small": (Share("a", (0,)),)}
    assert result.waiting == {
        "big": "needs 4 devices on each of 2 hosts of kind gpu, "
        "but 1 of the 1 that are up can offer that: the largest has 4"
    }
    assert plan([request("j")], []).waiting == {"j": "no host with devices of kind gpu is up"}
