import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.runners import stop_runners
from worker.spec import RUNNER_VARIABLE
from worker.strays import Runner

ON_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, {handler}); print('up', flush=True); time.sleep(300)"
)
WILLING = ON_SIGTERM.format(handler="lambda *_: exit(print('saved'))")
STUBBORN = ON_SIGTERM.format(handler="lambda *_: print('no', flush=True)")

Processes = list[subprocess.Popen[str]]


@pytest.fixture
def processes() -> Iterator[Processes]:
    started: Processes = []
    yield started
    for process in started:
        process.kill()
        process.communicate(timeout=30)


def start(processes: Processes, script: str, folder: Path | None = None) -> Runner:
    environment = os.environ | {RUNNER_VARIABLE: "1"}
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    processes.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return Runner("job", 1, psutil.Process(process.pid))


def test_runners_are_asked_to_stop_and_waited_for(processes: Processes) -> None:
    runners = [start(processes, WILLING), start(processes, WILLING)]
    stop_runners(runners, 60, hurry=lambda: False)
    assert not any(runner.process.is_running() for runner in runners)
    assert [process.communicate(timeout=30)[0] for process in processes] == ["saved\n"] * 2


def test_a_runner_that_takes_too_long_is_killed(processes: Processes) -> None:
    runner = start(processes, STUBBORN)
    stop_runners([runner], 0.2, hurry=lambda: False)
    assert not runner.process.is_running()


def test_in_a_hurry_nothing_is_waited_for(processes: Processes) -> None:
    runner = start(processes, STUBBORN)
    stop_runners([runner], 1e9, hurry=lambda: True)
    assert not runner.process.is_running()


@pytest.mark.parametrize("words", [[], ["--stop-jobs"]])
def test_a_worker_leaves_its_jobs_running_unless_told_otherwise(
    words: list[str],
    processes: Processes,
    migrated_sqlite: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempt = tmp_path / "work" / "job" / "attempts" / "1"
    attempt.mkdir(parents=True)
    shutil.copy(migrated_sqlite, tmp_path / "regatta.db")
    runner = start(processes, WILLING, attempt)
    monkeypatch.setenv("REGATTA_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("worker.main.run_worker", lambda settings: None)  # ended by a signal
    assert CliRunner().invoke(app, ["worker", *words]).exit_code == 0
    assert runner.process.is_running() == (not words)
