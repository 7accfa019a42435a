"""Paddle's launcher and ranks as real processes, watched by a supervisor in a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_S = 90
SECRET = "never-to-be-written"


@dataclass
class Run:
    """One supervisor and what it started."""

    folder: Path
    pids: set[int] = field(default_factory=set)

    def start(self, nproc: int, *words: str, **hosts: Any) -> None:
        gang = json.dumps({"nproc": nproc, **hosts})
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_TOKEN": SECRET, "PADDLE_TRAINER_ID": "7"}
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "supervisor.py"), str(self.folder), gang, *words],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def verdict(self) -> dict[str, Any]:
        """Wait for the end. Nothing is left running then."""
        output, _ = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, self.story()
        assert not self.alive()
        return json.loads(output)

    def run(self, nproc: int, *words: str) -> dict[str, Any]:
        self.start(nproc, *words)
        self.wait_for_step(nproc)
        return self.verdict()

    def log(self, rank: int) -> str:
        path = self.folder / f"rank-{rank}.log"
        return path.read_text() if path.exists() else ""

    def wait_for_step(self, nproc: int) -> None:
        """Wait until every rank has taken a step, and note the processes there are."""
        self.wait(lambda: all("step 1\n" in self.log(rank) for rank in range(nproc)))
        self.pids = {_read(self.folder / "launcher.pid")}
        self.pids |= {_read(path)["pid"] for path in self.folder.glob("start-*.json")}

    def wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self.process.poll() in (None, -signal.SIGKILL), self.story()
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.02)

    def alive(self) -> list[int]:
        return [pid for pid in self.pids if _is_alive(pid)]

    def story(self) -> str:
        return "\n".join(f"--- {path}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "logs")
    yield run
    run.end()


def test_ranks_that_all_end_well_are_a_success_with_a_log_for_each(run: Run) -> None:
    assert run.run(2, "done")["exit_code"] == 0
    assert [run.log(rank) for rank in (0, 1)] == ["".join(f"step {n}\n" for n in range(1, 6))] * 2


def test_nothing_secret_reaches_the_ranks_or_the_disk(run: Run) -> None:
    run.run(2, "done")
    environment = _read(run.folder / "environment-1.json")
    assert "HF_TOKEN" not in environment
    assert (environment["PADDLE_TRAINER_ID"], environment["PADDLE_TRAINERS_NUM"]) == ("1", "2")
    assert environment["PADDLE_DISTRI_BACKEND"] == "gloo"
    assert run.folder.stat().st_mode & 0o777 == 0o700
    written = [path for path in run.folder.iterdir() if SECRET in path.read_text()]
    assert written == []
    assert not [
        path.name
        for path in run.folder.iterdir()
        if path.name.startswith(("envlog", "backup_env", "default"))
    ]


@pytest.mark.parametrize("together", ["", "gloo:"])
def test_a_rank_that_is_killed_ends_all_and_is_named(run: Run, together: str) -> None:
    verdict = run.run(3, f"{together}kill", "2")
    assert (verdict["exit_code"], verdict["kind"], verdict["rank"]) == (137, "rank_killed", 2)
    # which signal it was is not always to be learned: the rank is a child of Paddle's launcher
    killed = r"Rank 2 was killed by (signal 9 \(SIGKILL\)|a signal)\. Perhaps the host had no memory"
    assert re.match(killed, verdict["msg"]), verdict["msg"]


def test_the_error_of_the_rank_that_failed_is_told_and_not_that_of_those_which_lost_it(run: Run) -> None:
    verdict = run.run(3, "gloo:raise", "2")
    assert (verdict["exit_code"], verdict["rank"]) == (1, 2)
    assert verdict["msg"].startswith("Rank 2: The trainer failed: ValueError: something bad.")


def test_a_rank_that_leaves_early_without_a_word_is_named(run: Run) -> None:
    verdict = run.run(2, "gloo:exit", "1")
    assert (verdict["exit_code"], verdict["rank"]) == (1, 1)
    assert "Rank 1 ended with exit status 0 and no word of why" in verdict["msg"]


def test_sigterm_reaches_every_rank_and_ends_well_when_they_do(run: Run) -> None:
    run.start(2, "slow_stop")
    run.wait_for_step(2)
    run.process.send_signal(signal.SIGTERM)
    assert run.verdict()["exit_code"] == 0
    for rank in (0, 1):
        assert run.log(rank).endswith("stopped\n")


@pytest.mark.parametrize(
    ("file", "kind", "code"), [("launcher.pid", "interrupted", 1), ("start-1.json", "", 0)]
)
def test_a_stop_that_comes_before_any_rank_has_begun_is_a_failure(
    run: Run, file: str, kind: str, code: int
) -> None:
    run.start(2, "gloo:wait")
    run.wait(lambda: (run.folder / file).exists())
    run.process.send_signal(signal.SIGTERM)
    verdict = run.verdict()
    assert (verdict["kind"], verdict["exit_code"]) == (kind, code)
    assert ("stopped" in run.log(0)) == (code == 0)


@pytest.mark.parametrize("victim", ["supervisor", "launcher"])
def test_no_rank_outlives_the_processes_above_it(run: Run, victim: str) -> None:
    run.start(2, "wait")
    run.wait_for_step(2)
    if victim == "supervisor":
        run.process.kill()
    else:
        os.kill(_read(run.folder / "launcher.pid"), signal.SIGKILL)
        verdict = run.verdict()
        assert (verdict["exit_code"], verdict["kind"], verdict["rank"]) == (137, "rank_killed", None)
        assert "The launcher of the ranks was killed" in verdict["msg"]
    run.wait(lambda: not run.alive())


def test_a_second_interrupt_does_not_wait(run: Run) -> None:
    run.start(2, "slow_stop")
    run.wait_for_step(2)
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(timeout=TIMEOUT_S) != 0
    assert not run.alive()


def test_two_hosts_train_together_and_a_stop_of_one_stops_both(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{probe.getsockname()[1]}"
    hosts = [Run(tmp_path / "first"), Run(tmp_path / "second")]
    try:
        for node, host in enumerate(hosts):
            host.start(1, "gloo:wait", nnodes=2, master=master, node=node)
        hosts[1].wait(lambda: "step 1\n" in hosts[1].log(1))
        hosts[0].process.send_signal(signal.SIGTERM)
        assert [host.verdict()["exit_code"] for host in hosts] == [0, 0]
        assert [hosts[0].log(0)[-8:], hosts[1].log(1)[-8:]] == ["stopped\n"] * 2
    finally:
        for host in hosts:
            host.end()


def test_a_script_that_cannot_start_is_told_with_the_launchers_words(run: Run) -> None:
    (run.folder.parent / "bad").mkdir()
    run.start(2, "done", "not-a-number")
    verdict = run.verdict()
    assert (verdict["exit_code"], verdict["kind"]) == (1, "internal")
    assert "could not be started" in verdict["msg"]
