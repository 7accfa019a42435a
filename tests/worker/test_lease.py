import threading
from collections.abc import Callable, Iterator

import pytest

from store.attempts import Renewal
from tests.worker.waiting import wait_until
from worker.clock import boottime
from worker.lease import Lease

ALIVE = Renewal(alive=True, cancel_requested=False)


@pytest.fixture
def start() -> Iterator[Callable[..., Lease]]:
    leases: list[Lease] = []

    def start(renew: Callable[[], Renewal], heartbeat_s: float = 0.05, renewed_at: float = 0.0) -> Lease:
        lease = Lease(renew, changed.set, heartbeat_s, renewed_at)
        lease.start()
        leases.append(lease)
        return lease

    changed.clear()
    yield start
    for lease in leases:
        lease.end()
        lease.join(30)
        assert not lease.is_alive()


changed = threading.Event()


def test_the_lease_is_renewed_again_and_again(start: Callable[..., Lease]):
    renewals: list[float] = []

    def renew() -> Renewal:
        renewals.append(boottime())
        return ALIVE

    lease = start(renew)
    wait_until(lambda: len(renewals) >= 3)
    assert lease.renewed_at <= renewals[-1]
    assert not lease.fenced.is_set()


def test_its_age_counts_from_before_the_question(start: Callable[..., Lease]):
    asked = threading.Event()
    answer = threading.Event()

    def renew() -> Renewal:
        asked.set()
        answer.wait(30)
        return ALIVE

    lease = start(renew, heartbeat_s=60)
    asked.wait(30)
    answered_at = boottime()
    answer.set()
    wait_until(lambda: lease.renewed_at > 0)
    assert lease.renewed_at <= answered_at


def test_no_answer_is_no_verdict(start: Callable[..., Lease]):
    calls: list[int] = []

    def renew() -> Renewal:
        calls.append(1)
        raise ConnectionError("the database is away")

    lease = start(renew, renewed_at=7.0)
    wait_until(lambda: len(calls) >= 3)
    assert lease.renewed_at == 7.0
    assert not lease.fenced.is_set()
    assert not changed.is_set()


def test_a_lease_of_somebody_else_fences_and_ends_the_renewing(start: Callable[..., Lease]):
    lease = start(lambda: Renewal(alive=False, cancel_requested=False), renewed_at=7.0)
    wait_until(lease.fenced.is_set)
    wait_until(changed.is_set)
    lease.join(30)
    assert not lease.is_alive()
    assert lease.renewed_at == 7.0


def test_a_wish_to_cancel_is_noticed_at_once_when_there_is_a_hint(start: Callable[..., Lease]):
    wishes: list[bool] = [False]
    lease = start(lambda: Renewal(alive=True, cancel_requested=wishes[0]), heartbeat_s=600)
    wait_until(lambda: lease.renewed_at > 0)
    wishes[0] = True
    lease.poke()
    wait_until(lease.cancel_requested.is_set)
    assert changed.is_set()
