"""Finds the runners of this host, and trainers that outlived theirs, by marks in their environment."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from worker.spec import EVENTS_VARIABLE, RUNNER_VARIABLE
from worker.workspace import ATTEMPTS, AttemptFolder

_DELETED = " (deleted)"
"""What the kernel adds to the path of a current folder that was removed."""


@dataclass(frozen=True)
class Runner:
    """A live runner process on this host."""

    job_id: str
    attempt: int
    process: psutil.Process


def live_runners(work_dir: Path) -> list[Runner]:
    """The runners of this work directory that live now and have an attempt."""
    return [Runner(*_attempt_of(spec, work_dir), process) for process, spec in _runners(work_dir)]


def end_processes_of(folder: AttemptFolder) -> list[int]:
    """SIGKILL what still lives of an attempt that is over: its runner, its trainer and all that this started.

    Reaches what the parent-death signal does not: descendants of a trainer whose runner was killed.
    """
    owned = [process for process, spec in _runners(folder.path) if spec == folder.spec]
    owned += [process for process, path in _trainers(folder.path) if path == folder.events]
    return _kill(owned)


def kill_orphaned_trainers(work_dir: Path) -> list[int]:
    """SIGKILL the trainers of this work directory whose runner is gone, with all that they have started."""
    alive = {(runner.job_id, runner.attempt) for runner in live_runners(work_dir)}
    trainers = _trainers(work_dir)
    return _kill([process for process, path in trainers if _attempt_of(path, work_dir) not in alive])


def spec_of_runner(process: psutil.Process) -> Path | None:
    """The spec of the attempt that the process runs; None when it is no runner, or waits for an attempt.

    Raises: psutil.Error.
    """
    if RUNNER_VARIABLE not in process.environ():
        return None
    folder = Path(process.cwd().removesuffix(_DELETED))
    return AttemptFolder(folder).spec if folder.parent.name == ATTEMPTS else None


def _runners(folder: Path) -> Iterator[tuple[psutil.Process, Path]]:
    """The runners of the attempts below the folder, and their specs."""
    # the kernel tells where a process is by the folder's real path
    real = folder.resolve()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            spec = spec_of_runner(process)
            if spec is not None and spec.is_relative_to(real):
                yield process, folder / spec.relative_to(real)


def _trainers(folder: Path) -> Iterator[tuple[psutil.Process, Path]]:
    """The processes whose environment names an event file below the folder."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            path = Path(process.environ().get(EVENTS_VARIABLE, ""))
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
