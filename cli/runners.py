"""Stop the running jobs of this machine; their runners outlive the worker on purpose."""

import contextlib
import time
from collections.abc import Callable, Sequence

import psutil

from worker.strays import Runner

POLL_S = 0.1


def stop_runners(runners: Sequence[Runner], timeout_s: float, hurry: Callable[[], bool]) -> None:
    """Tell runners to stop with a checkpoint and hand their jobs back, and wait for it.

    Those that take longer than `timeout_s`, or all as soon as `hurry()`, are killed. A trainer dies with its
    runner.
    """
    alive = [runner.process for runner in runners]
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + timeout_s
    while alive and time.monotonic() < deadline and not hurry():
        _, alive = psutil.wait_procs(alive, POLL_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, 10)
