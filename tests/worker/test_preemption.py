from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from worker.kind import Capacity, Request
from worker.placement import plan
from worker.preemption import Tenant, make_room


def request(priority: int = 1, nodes: int = 1, devices: int = 1) -> Request:
    return Request("urgent", "gpu", nodes, devices, priority, 0.0)


def host(name: str, total: int, idle: int = 0) -> Capacity:
    return Capacity(name, "gpu", total, tuple(range(idle)))


def tenant(job_id: str, priority: int = 0, since: float = 0.0, **devices: int) -> Tenant:
    return Tenant(job_id, 1, priority, since, devices)


@st.composite
def fleets(draw: st.DrawFn, spread: int = 2) -> tuple[list[Capacity], list[Tenant]]:
    """Hosts, and attempts that hold devices on up to `spread` of them."""
    hosts, idle = [], {}
    for number in range(draw(st.integers(1, 4))):
        total = draw(st.integers(1, 4))
        hosts.append((f"h{number}", total))
        idle[f"h{number}"] = total
    tenants = []
    for number in range(draw(st.integers(0, 6))):
        names = draw(st.lists(st.sampled_from(sorted(idle)), min_size=1, max_size=spread, unique=True))
        devices = {name: draw(st.integers(1, idle[name])) for name in names if idle[name] > 0}
        for name, count in devices.items():
            idle[name] -= count
        if devices:
            priority, since = draw(st.integers(-2, 2)), draw(st.integers(0, 9))
            tenants.append(Tenant(f"t{number}", 1, priority, since, devices))
    return [host(name, total, idle[name]) for name, total in hosts], tenants


urgent = st.builds(request, st.integers(-1, 3), st.integers(1, 3), st.integers(1, 4))


def can_start(wanted: Request, hosts: list[Capacity], leaving: tuple[Tenant, ...]) -> bool:
    idle = [len(h.free) + sum(t.devices.get(h.host, 0) for t in leaving) for h in hosts]
    return sum(count >= wanted.devices_per_node for count in idle) >= wanted.nodes


@given(urgent, fleets(), st.integers(1, 2))
def test_who_is_asked_is_less_urgent_and_each_of_them_is_needed(
    wanted: Request, fleet: tuple[list[Capacity], list[Tenant]], margin: int
):
    hosts, tenants = fleet
    asked = make_room(wanted, hosts, tenants, margin=margin)
    assert all(t.priority + margin <= wanted.priority for t in asked)
    assert len({t.job_id for t in asked}) == len(asked)
    if asked:
        assert can_start(wanted, hosts, asked)
        for one in asked:
            assert not can_start(wanted, hosts, tuple(t for t in asked if t is not one))


@given(urgent, fleets())
def test_room_is_made_whenever_it_can_be_and_is_missing(
    wanted: Request, fleet: tuple[list[Capacity], list[Tenant]]
):
    hosts, tenants = fleet
    lower = tuple(t for t in tenants if t.priority < wanted.priority)
    expected = not can_start(wanted, hosts, ()) and can_start(wanted, hosts, lower)
    assert bool(make_room(wanted, hosts, tenants)) == expected


@given(urgent, fleets(spread=1))
def test_of_attempts_on_one_host_each_the_fewest_lowest_and_youngest_are_asked(
    wanted: Request, fleet: tuple[list[Capacity], list[Tenant]]
):
    hosts, tenants = fleet

    def cost(leaving: tuple[Tenant, ...]) -> tuple[float, ...]:
        return (len(leaving), sum(t.priority for t in leaving), -sum(t.since for t in leaving))

    asked = make_room(wanted, hosts, tenants)
    if asked:
        lower = [t for t in tenants if t.priority < wanted.priority]
        every = (set_ for size in range(len(lower) + 1) for set_ in combinations(lower, size))
        assert cost(asked) == min(cost(set_) for set_ in every if can_start(wanted, hosts, set_))


@given(urgent, fleets(), st.data())
def test_nobody_is_asked_while_enough_comes_free_in_any_case(
    wanted: Request, fleet: tuple[list[Capacity], list[Tenant]], data: st.DataObject
):
    hosts, tenants = fleet
    asked = make_room(wanted, hosts, tenants)
    coming = {h.host: sum(t.devices.get(h.host, 0) for t in asked) for h in hosts}
    assert make_room(wanted, hosts, [t for t in tenants if t not in asked], coming=coming) == ()


@given(urgent, fleets(), st.lists(urgent, max_size=4))
def test_who_has_made_room_gets_nothing_before_the_job_that_it_was_made_for(
    wanted: Request, fleet: tuple[list[Capacity], list[Tenant]], behind: list[Request]
):
    hosts, tenants = fleet
    others = [
        replace(
            other, job_id=f"behind{number}", created_at=1.0, priority=min(other.priority, wanted.priority)
        )
        for number, other in enumerate(behind)
    ]
    first = plan([wanted, *others], hosts)
    heads = [(request, able) for request, able in first.heads if request is wanted]
    for request, able in heads:
        asked = make_room(request, able, tenants)
        if asked:
            left = {
                each.host: len(each.free) + sum(t.devices.get(each.host, 0) for t in asked) for each in able
            }
            freed = [replace(each, free=tuple(range(left[each.host]))) for each in able]
            again = [Request(t.job_id, "gpu", 1, 1, t.priority, -1.0) for t in asked]
            waiting = [other for other in others if other.job_id not in first.placed]
            assert wanted.job_id in plan([*again, wanted, *waiting], freed).placed


def test_one_attempt_over_two_hosts_goes_before_two_on_one_each():
    both = tenant("both", priority=0, a=2, b=2)
    lower = [tenant("left", priority=-5, a=2), tenant("right", priority=-5, b=2)]
    assert make_room(request(nodes=2, devices=2), [host("a", 4), host("b", 4)], [*lower, both]) == (both,)


def test_of_equal_priority_the_youngest_is_asked():
    old, young = tenant("old", since=1.0, a=1), tenant("young", since=2.0, a=1)
    assert make_room(request(), [host("a", 2)], [old, young]) == (young,)


def test_equal_priority_is_never_asked():
    assert make_room(request(priority=0), [host("a", 1)], [tenant("equal", a=1)]) == ()
