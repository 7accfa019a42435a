"""The worker and the scheduler as processes of their own, beside a real broker."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from store.attempts import host_queue
from store.broker import Broker
from store.hosts import list_hosts
from store.settings import Settings
from store.states import TERMINAL, Status
from tests.worker.bench import Bench, is_alive
from tests.worker.waiting import wait_until
from worker.celery_app import LAUNCH, make_app
from worker.runners import settings_environment

SETTINGS = "from store.settings import get_settings; "
SCHEDULER = SETTINGS + "from worker.scheduler import run_scheduler; run_scheduler(get_settings())"
WORKER = SETTINGS + "from worker.main import run_worker; run_worker(get_settings())"

LONG = {"steps": 400, "step_s": 0.05}

Start = Callable[[str], subprocess.Popen]


@pytest.fixture
def start(bench: Bench) -> Iterator[Start]:
    """Start the scheduler or the worker; both are gone after the test."""
    started: list[subprocess.Popen] = []

    def start(code: str) -> subprocess.Popen:
        environment = os.environ | settings_environment(bench.settings)
        started.append(subprocess.Popen([sys.executable, "-c", code], env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(30)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"devices": "cpu:2"})


def host_accepts_jobs(bench: Bench) -> bool:
    with bench.database.reading() as session:
        return [host.accepts_jobs for host in list_hosts(session)] == [True]


def test_a_submitted_job_is_placed_launched_and_finished_whichever_scheduler_lives(
    bench: Bench, start: Start
):
    scheduler = start(SCHEDULER)
    start(WORKER)
    job_id = bench.submit()
    job = bench.wait_for_end(job_id)
    assert job.status == Status.succeeded, bench.story(job_id)
    assert job.placement == [{"host": "host-a", "devices": [0], "ranks": [0]}]
    scheduler.kill()
    scheduler.wait(30)
    start(SCHEDULER)
    assert bench.wait_for_end(bench.submit()).status == Status.succeeded
    with bench.database.reading() as session:
        (host,) = list_hosts(session)
    assert (host.device, [device["index"] for device in host.devices]) == ("cpu", [0, 1])


def test_jobs_share_the_devices_and_one_that_waits_says_for_what(bench: Bench, start: Start):
    start(SCHEDULER)
    start(WORKER)
    first, second = bench.submit(LONG), bench.submit(LONG)
    for job_id in (first, second):
        bench.wait(job_id, lambda job: job.status == Status.running)
    third = bench.submit()
    job = bench.wait(third, lambda job: job.message != "")
    assert job.message == "waiting for 1 device on a host of kind cpu: all 2 are in use"
    assert bench.history(third) == ["queued"]
    bench.cancel(first)
    assert bench.wait(third, lambda job: job.status in TERMINAL).status == Status.succeeded
    bench.cancel(second)
    bench.wait_for_end(second)


def test_a_message_that_comes_twice_or_too_late_starts_nothing(bench: Bench, start: Start):
    start(WORKER)
    app = make_app(bench.settings)

    def send(job_id: str, attempt: int) -> None:
        app.send_task(LAUNCH, args=(job_id, attempt), queue=host_queue("host-a"))

    wait_until(lambda: host_accepts_jobs(bench))
    job_id = bench.submit({"steps": 20, "step_s": 0.05})
    attempt = bench.place(job_id)
    for _ in range(3):
        send(job_id, attempt)
    bench.wait(job_id, lambda job: job.status == Status.running)
    send(job_id, attempt)
    send(job_id, attempt + 1)
    send("no-such-job", 1)
    assert bench.wait_for_end(job_id).status == Status.succeeded
    send(job_id, attempt)
    marker = bench.submit()
    send(marker, bench.place(marker))
    bench.wait_for_end(marker)
    assert [line.line for line in bench.logs(job_id)].count("starting at step 0") == 1
    assert [folder.number for folder in bench.workspace(job_id).attempts()] == [1]


def test_a_worker_that_ends_leaves_its_runner_at_work(bench: Bench, start: Start):
    start(SCHEDULER)
    worker = start(WORKER)
    job_id = bench.submit({"steps": 200, "step_s": 0.15})
    bench.wait(job_id, lambda job: job.status == Status.running)
    worker.kill()
    worker.wait(30)
    assert bench.runner(job_id).is_running()
    worker = start(WORKER)
    other = bench.submit()
    bench.wait(other, lambda job: job.status in TERMINAL)
    worker.terminate()
    assert worker.wait(30) == 0
    assert bench.runner(job_id).is_running()
    assert not host_accepts_jobs(bench)
    job = bench.wait_for_end(job_id)
    assert (job.status, job.attempt) == (Status.succeeded, 1), bench.story(job_id)
    assert bench.metric_steps(job_id) == list(range(1, 201))


def test_the_broker_may_be_killed_at_any_time(
    bench: Bench, start: Start, broker: Broker, restart_broker: Callable[[], None]
):
    start(SCHEDULER)
    start(WORKER)
    wait_until(lambda: host_accepts_jobs(bench))
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: not broker.is_alive())
    job_id = bench.submit()
    bench.wait(job_id, lambda job: job.status == Status.starting)
    restart_broker()
    assert bench.wait_for_end(job_id).status == Status.succeeded


def test_a_killed_runner_is_noticed_and_its_job_resumed(bench: Bench, start: Start):
    start(SCHEDULER)
    start(WORKER)
    job_id = bench.submit({"steps": 40, "save_steps": 5, "children": 2, "hang_at": 15})
    bench.wait(job_id, lambda job: job.progress.get("step", 0) == 15)
    pids = bench.pids(job_id)
    bench.runner(job_id).kill()
    job = bench.wait_for_end(job_id)
    assert (job.status, job.attempt) == (Status.succeeded, 2), bench.story(job_id)
    assert "trainer_killed" in [event.reason for event in bench.events(job_id, "status")]
    assert sorted(bench.metric_steps(job_id)) == list(range(1, 41))
    assert not any(is_alive(pid) for pid in pids)


def test_a_worker_without_the_devices_that_it_shall_offer_says_so_and_ends(bench: Bench):
    settings = bench.settings.model_copy(update={"devices": "gpu:4096"})
    environment = os.environ | settings_environment(settings)
    ended = subprocess.run(
        [sys.executable, "-c", WORKER], env=environment, stderr=subprocess.PIPE, timeout=60
    )
    assert ended.returncode == 1
    assert ended.stderr.decode().startswith("devices: got 'gpu:4096', but ")
