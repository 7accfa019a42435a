"""Waiting for a condition with a deadline."""

import time
from collections.abc import Callable

DEADLINE_S = 60.0


def wait_until(
    condition: Callable[[], object],
    timeout_s: float = DEADLINE_S,
    complaint: Callable[[], str] = lambda: "the condition did not come true in time",
) -> None:
    """Poll until the condition holds; the test fails when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.02)
