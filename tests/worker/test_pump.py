import threading
from collections.abc import Callable

from tests.worker.waiting import wait_until
from worker.pump import Fenced, Pump


def run(step: Callable[[bool], bool], fenced: Callable[[], None] = lambda: None) -> Pump:
    pump = Pump("test", step, fenced)
    pump.start()
    return pump


def test_it_works_off_what_comes_until_the_source_has_ended_and_is_empty():
    source, done = list(range(5)), []

    def step(final: bool) -> bool:
        if source:
            done.append(source.pop(0))
        return bool(source)

    pump = run(step)
    wait_until(lambda: done == [0, 1, 2, 3, 4])
    assert pump.is_alive()
    source += [5, 6]
    pump.finish()
    pump.join(30)
    assert (done, pump.drained) == ([0, 1, 2, 3, 4, 5, 6], True)


def test_a_failing_step_is_repeated_until_it_works():
    failures = [OSError("disk full"), ConnectionError("away")]

    def step(final: bool) -> bool:
        if failures:
            raise failures.pop()
        return False

    pump = run(step)
    pump.finish()
    pump.join(30)
    assert pump.drained


def test_it_ends_when_the_attempt_is_fenced():
    told = threading.Event()

    def step(final: bool) -> bool:
        raise Fenced

    pump = run(step, told.set)
    pump.join(30)
    assert told.is_set()
    assert not pump.drained


def test_it_can_be_abandoned_during_an_outage():
    tried = threading.Event()

    def step(final: bool) -> bool:
        tried.set()
        raise ConnectionError("away")

    pump = run(step)
    pump.finish()
    tried.wait(30)
    pump.abandon()
    pump.join(30)
    assert not pump.is_alive()
    assert not pump.drained
