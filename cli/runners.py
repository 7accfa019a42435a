"""The runners of jobs on this machine: they outlive the worker on purpose, so they are looked for here."""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

POLL_S = 0.1


def live_runners(work_dir: Path) -> list[psutil.Process]:
    """The runner processes whose jobs have their workspace below `work_dir`."""
    return [
        process for process in psutil.process_iter(["cmdline"]) if _runs_in(process.info["cmdline"], work_dir)
    ]


def stop_runners(runners: Sequence[psutil.Process], timeout_s: float, hurry: Callable[[], bool]) -> None:
    """Tell runners to stop with a checkpoint, and wait for it.

    Those that take longer than `timeout_s`, or all as soon as `hurry()`, are killed. A trainer dies with its
    runner.
    """
    for runner in runners:
        with contextlib.suppress(psutil.NoSuchProcess):
            runner.terminate()
    deadline = time.monotonic() + timeout_s
    alive = list(runners)
    while alive and time.monotonic() < deadline and not hurry():
        _, alive = psutil.wait_procs(alive, POLL_S)
    for runner in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            runner.kill()
    psutil.wait_procs(alive, 10)


def _runs_in(command: Sequence[str] | None, work_dir: Path) -> bool:
    words = list(command or ())
    return "worker.runner" in words and any(Path(word).is_relative_to(work_dir) for word in words)
