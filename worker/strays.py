"""Finds the runners of this host, and trainers that outlived theirs, by marks in their environment."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from worker.spec import EVENTS_VARIABLE, RUNNER_VARIABLE
from worker.workspace import AttemptFolder


@dataclass(frozen=True)
class Runner:
    """A live runner process on this host."""

    job_id: str
    attempt: int
    process: psutil.Process


def live_runners(work_dir: Path) -> list[Runner]:
    """The runners of this work directory that live now."""
    return [
        Runner(*_attempt_of(path, work_dir), process) for process, path in _marked(RUNNER_VARIABLE, work_dir)
    ]


def end_processes_of(folder: AttemptFolder) -> list[int]:
    """SIGKILL what still lives of an attempt that is over: its runner, its trainer and all that this started.

    Reaches what the parent-death signal does not: descendants of a trainer whose runner was killed.
    """
    spec, events = folder.spec, folder.events
    owned = [process for process, path in _marked(RUNNER_VARIABLE, folder.path) if path == spec]
    owned += [process for process, path in _marked(EVENTS_VARIABLE, folder.path) if path == events]
    return _kill(owned)


def kill_orphaned_trainers(work_dir: Path) -> list[int]:
    """SIGKILL the trainers of this work directory whose runner is gone, with all that they have started."""
    alive = {(runner.job_id, runner.attempt) for runner in live_runners(work_dir)}
    trainers = _marked(EVENTS_VARIABLE, work_dir)
    return _kill([process for process, path in trainers if _attempt_of(path, work_dir) not in alive])


def _marked(variable: str, folder: Path) -> Iterator[tuple[psutil.Process, Path]]:
    """The processes whose environment names a file below the folder in this variable."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            path = Path(process.environ().get(variable, ""))
            if path.is_relative_to(folder):
                yield process, path


def _attempt_of(path: Path, work_dir: Path) -> tuple[str, int]:
    """Job id and attempt of `<work_dir>/<job id>/attempts/<n>/<file>`."""
    job_id, _, attempt, _ = path.relative_to(work_dir).parts
    return job_id, int(attempt)


def _kill(processes: list[psutil.Process]) -> list[int]:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return [process.pid for process in processes]
