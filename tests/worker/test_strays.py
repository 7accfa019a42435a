import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.worker.waiting import wait_until
from worker.strays import end_processes_of, kill_orphaned_trainers, live_runners
from worker.workspace import AttemptFolder, Workspace

Start = Callable[[str, Path], subprocess.Popen]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen] = []

    def start(variable: str, file: Path) -> subprocess.Popen:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        file.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {variable: str(file)}
        process = subprocess.Popen(command, env=environment, cwd=file.parent)
        started.append(process)
        wait_until(lambda: variable in psutil.Process(process.pid).environ())
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(30)


def folder(work_dir: Path, job: str, attempt: int = 1) -> AttemptFolder:
    return Workspace(work_dir / job).attempt(attempt)


def test_runners_are_found_by_their_work_directory(start: Start, tmp_path: Path):
    ours = start("REGATTA_RUNNER", folder(tmp_path / "work", "job-1", 2).spec)
    start("REGATTA_RUNNER", folder(tmp_path / "other", "job-2").spec)
    assert [(r.job_id, r.attempt, r.process.pid) for r in live_runners(tmp_path / "work")] == [
        ("job-1", 2, ours.pid)
    ]


def test_the_processes_of_an_attempt_are_ended_and_no_others(start: Start, tmp_path: Path):
    over, alive = folder(tmp_path, "job", 1), folder(tmp_path, "job", 11)
    runner, trainer = start("REGATTA_RUNNER", over.spec), start("REGATTA_EVENTS", over.events)
    others = [start("REGATTA_RUNNER", alive.spec), start("REGATTA_EVENTS", alive.events)]
    assert sorted(end_processes_of(over)) == sorted([runner.pid, trainer.pid])
    assert [process.wait(30) for process in (runner, trainer)] == [-signal.SIGKILL, -signal.SIGKILL]
    assert [process.poll() for process in others] == [None, None]


def test_a_trainer_whose_runner_is_gone_is_an_orphan(start: Start, tmp_path: Path):
    kept = folder(tmp_path, "job-1")
    start("REGATTA_RUNNER", kept.spec)
    trainer = start("REGATTA_EVENTS", kept.events)
    orphan = start("REGATTA_EVENTS", folder(tmp_path, "job-1", 2).events)
    assert kill_orphaned_trainers(tmp_path) == [orphan.pid]
    assert orphan.wait(30) == -signal.SIGKILL
    assert trainer.poll() is None
