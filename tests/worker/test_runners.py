"""A runner that is started before there is an attempt for it."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import psutil
import pytest

from store.states import Status
from tests.worker.bench import Bench
from tests.worker.waiting import wait_until
from worker.launch import Launcher
from worker.runners import Runners, settings_environment
from worker.spec import AHEAD
from worker.strays import live_runners


@pytest.fixture
def launcher(bench: Bench) -> Iterator[Callable[[], Launcher]]:
    """A launcher with a runner that waits."""
    opened: list[Runners] = []

    def launcher() -> Launcher:
        opened.append(Runners(bench.settings, ahead=True))
        wait_until(lambda: opened[-1].ready)
        return Launcher(bench.settings, bench.database, threading.Event(), opened[-1])

    yield launcher
    for runners in opened:
        runners.close()
    assert waiting() == []


def waiting() -> list[psutil.Process]:
    """The runners, children of this process, that were started ahead and run no attempt."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE
        and AHEAD in child.cmdline()
        and "attempts" not in child.cwd()
    ]


def test_the_runner_that_waits_runs_the_next_attempt_and_another_one_waits(
    bench: Bench, launcher: Callable[[], Launcher]
):
    ready = launcher()
    (first,) = waiting()
    assert live_runners(bench.settings.work_dir) == []
    job_id = bench.submit({"steps": 400, "step_s": 0.05})
    running = threading.Thread(target=ready.launch, args=(job_id, bench.place(job_id)))
    running.start()
    trainer, *_ = bench.pids(job_id)
    assert psutil.Process(trainer).ppid() == first.pid == bench.runner(job_id).pid
    wait_until(waiting)
    bench.cancel(job_id)
    bench.wait_for_end(job_id)
    running.join()
    (second,) = waiting()
    assert second.pid != first.pid
    assert "reported: cancelled" in bench.workspace(job_id).attempt(1).runner_log.read_text()


def test_a_runner_that_died_while_it_waited_costs_no_attempt(bench: Bench, launcher: Callable[[], Launcher]):
    ready = launcher()
    (dead,) = waiting()
    dead.kill()
    wait_until(lambda: waiting() == [])
    job_id = bench.submit({"steps": 1})
    ready.launch(job_id, bench.place(job_id))
    assert bench.job(job_id).status == Status.succeeded, bench.story(job_id)


def test_a_runner_that_waits_ends_with_its_worker(bench: Bench):
    code = (
        "import os, signal; from store.settings import get_settings; from worker.runners import Runners; "
        "runners = Runners(get_settings(), ahead=True); print('started', flush=True); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = os.environ | settings_environment(bench.settings)
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as worker:
        # the runner holds the other end of the pipe, too: it ends when the runner does
        assert worker.communicate(timeout=60)[0] == b"started\n"
    assert worker.returncode == -signal.SIGKILL
