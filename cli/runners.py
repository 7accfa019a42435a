"""Stop the running jobs of this machine; their runners outlive the worker on purpose."""

import contextlib
import time
from collections.abc import Callable, Sequence

import psutil

from store.settings import Settings
from worker.strays import Runner, live_runners

POLL_S = 0.1
PUBLISH_TIMEOUT_S = 120.0  # after its trainer has stopped, a runner still publishes the last checkpoint


def stop_jobs_of(settings: Settings, hurry: Callable[[], bool] = lambda: False) -> None:
    """Stop what runs in the work directory with a checkpoint; see `stop_runners`."""
    stop_runners(live_runners(settings.work_dir), settings.stop_grace_s + PUBLISH_TIMEOUT_S, hurry)


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
