"""Waiting for a condition with a deadline."""

import time
from collections.abc import Callable

DEADLINE_S = 30.0


def wait_until(condition: Callable[[], object]) -> None:
    """Poll until the condition holds; the test fails when it does not in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)
