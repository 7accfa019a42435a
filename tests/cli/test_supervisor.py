import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from cli.supervisor import LONGEST_PAUSE_S, Child, ChildSpec, ending, restart_pause

SLEEPER = "import time; print('up', flush=True); time.sleep(300)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER


def child_of(tmp_path: Path, script: str) -> Child:
    return Child(
        ChildSpec(
            "part",
            [sys.executable, "-c", script],
            dict(os.environ),
            tmp_path / "part.log",
            tmp_path / "run" / "part.pid",
        )
    )


def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


def test_a_child_writes_its_log_and_its_pid_file_and_ends_on_sigterm(tmp_path: Path) -> None:
    child = child_of(tmp_path, SLEEPER)
    child.start()
    until(lambda: "up" in child.spec.log.read_text())
    assert child.pid is not None
    assert int(child.spec.pid_file.read_text()) == child.pid
    process = psutil.Process(child.pid)
    assert child.stop(30) is True
    assert not process.is_running()
    assert not child.spec.pid_file.exists()


def test_a_child_that_is_killed_is_started_again_with_a_new_pid_file(tmp_path: Path) -> None:
    child = child_of(tmp_path, SLEEPER)
    child.start()
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    words: list[str] = []

    def restarted() -> bool:
        if said := child.tend():
            words.append(said)
        return child.pid not in (None, first)

    until(restarted)
    assert "part was killed by SIGKILL; starting it again in 0.25 s" in words[0]
    assert int(child.spec.pid_file.read_text()) == child.pid
    child.stop(30)


def test_the_pause_before_a_restart_grows_to_a_limit() -> None:
    pauses = [restart_pause(deaths) for deaths in range(1, 12)]
    assert pauses[:4] == [0.25, 0.5, 1.0, 2.0]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child = child_of(tmp_path, STUBBORN)
    child.start()
    until(lambda: "up" in child.spec.log.read_text())
    assert child.stop(0.2) is False


def test_a_hurried_stop_does_not_wait_for_the_timeout(tmp_path: Path) -> None:
    child = child_of(tmp_path, STUBBORN)
    child.start()
    until(lambda: "up" in child.spec.log.read_text())
    assert child.stop(1e9, hurry=lambda: True) is False


def test_a_stopped_child_is_not_started_again(tmp_path: Path) -> None:
    child = child_of(tmp_path, "raise SystemExit(4)")
    child.start()
    until(lambda: child.tend() is not None)
    child.stop(1)
    assert child.tend() is None
    assert child.pid is None


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, sys, time; from pathlib import Path; from cli.supervisor import Child, ChildSpec\n"
        "here = Path(sys.argv[1])\n"
        f"command = [sys.executable, '-c', {SLEEPER!r}]\n"
        "spec = ChildSpec('part', command, os.environ, here / 'log', here / 'pid')\n"
        "Child(spec).start(); time.sleep(300)"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    try:
        until(lambda: (tmp_path / "log").exists() and "up" in (tmp_path / "log").read_text())
        child = psutil.Process(int((tmp_path / "pid").read_text()))
    finally:
        supervisor.kill()
        supervisor.wait(30)
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_an_end_is_told_in_words() -> None:
    assert ending(3) == "ended with exit status 3"
    assert ending(-9) == "was killed by SIGKILL"
