import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from cli.runners import stop_runners
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


def start(processes: Processes, script: str) -> Runner:
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
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
