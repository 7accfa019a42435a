"""Work that is done ahead."""

import threading

import pytest

from trainer.ahead import THREADS, done_ahead


def test_results_come_in_order_and_few_are_made_ahead() -> None:
    made: list[int] = []
    lock = threading.Lock()

    def work(item: int) -> int:
        with lock:
            made.append(item)
        return item * item

    found = done_ahead(work, range(20))
    assert next(found) == (0, 0)
    assert len(made) <= THREADS + 1
    assert list(found) == [(item, item * item) for item in range(1, 20)]


def test_an_error_is_raised_when_its_item_is_due() -> None:
    found = done_ahead(lambda item: 6 // item, [3, 2, 0, 1])
    assert [next(found), next(found)] == [(3, 2), (2, 3)]
    with pytest.raises(ZeroDivisionError):
        next(found)
