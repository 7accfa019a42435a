"""A runner whose database is out of reach for longer than a lease, behind a cable that is cut and mended."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import make_url

from store.broker import Broker
from store.database import Database
from store.settings import Settings
from store.states import Status
from tests.worker.bench import PROGRAMS, SHORT_LEASE, Bench, is_alive
from tests.worker.cable import Cable
from tests.worker.waiting import wait_until
from worker.clock import boottime
from worker.strays import live_runners


@pytest.fixture
def direct_url(postgres: Callable[..., str], migrated_postgres: str) -> str:
    return postgres(migrated_postgres)


@pytest.fixture
def cable(direct_url: str, tmp_path: Path) -> Iterator[Cable]:
    target = Path(str(make_url(direct_url).query["host"])) / ".s.PGSQL.5432"
    cable = Cable(tmp_path / ".s.PGSQL.5432", target)
    yield cable
    cable.cut()


@pytest.fixture
def bench(
    direct_url: str,
    cable: Cable,
    settings: Settings,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Bench]:
    """A bench whose runners reach the database through the cable, and the test directly."""
    monkeypatch.setenv("PYTHONPATH", str(PROGRAMS))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cabled = make_url(direct_url).set(drivername="postgresql").update_query_dict({"host": str(tmp_path)})
    url = cabled.render_as_string(hide_password=False)
    database = Database(direct_url)
    yield Bench(settings.model_copy(update=SHORT_LEASE | {"database_url": url, "outage_s": 60}), database)
    for runner in live_runners(settings.work_dir):
        runner.process.kill()
    database.dispose()


def raw_steps(bench: Bench, job_id: str) -> int:
    return bench.workspace(job_id).attempt(1).raw_log(0).read_text().count("step")


def test_the_trainer_goes_on_and_everything_is_reported_afterwards(bench: Bench, cable: Cable):
    job_id = bench.submit({"steps": 120, "step_s": 0.05, "save_steps": 30})
    bench.start(job_id)
    bench.wait(job_id, lambda job: job.progress.get("step", 0) >= 3)
    cable.cut()
    lease_over_at = boottime() + bench.settings.lease_ttl_s
    wait_until(lambda: boottime() > lease_over_at and raw_steps(bench, job_id) > 80)
    reported = bench.job(job_id).progress["step"]
    assert reported < 80
    cable.mend()
    job = bench.wait_for_end(job_id)
    assert (job.status, job.attempt) == (Status.succeeded, 1), bench.story(job_id)
    assert bench.metric_steps(job_id) == list(range(1, 121))
    assert [event.data["name"] for event in bench.events(job_id, "checkpoint")] == [
        f"checkpoint-{step}" for step in (30, 60, 90, 120)
    ]


def test_an_outage_that_outlasts_the_trainer_delays_only_the_report(bench: Bench, cable: Cable):
    job_id = bench.submit({"steps": 20, "step_s": 0.05})
    bench.start(job_id)
    bench.wait(job_id, lambda job: job.progress.get("step", 0) >= 3)
    cable.cut()
    trainer = bench.pids(job_id)[0]
    wait_until(lambda: not is_alive(trainer))
    assert bench.job(job_id).status == Status.running
    cable.mend()
    assert bench.wait_for_end(job_id).status == Status.succeeded
    assert bench.metric_steps(job_id) == list(range(1, 21))


def test_an_attempt_that_was_taken_over_meanwhile_stops_before_it_reports_anything(
    bench: Bench, cable: Cable
):
    job_id = bench.submit({"steps": 400, "step_s": 0.05})
    bench.start(job_id)
    bench.wait(job_id, lambda job: job.progress.get("step", 0) >= 3)
    cable.cut()
    bench.take_away(job_id)
    known = bench.metric_steps(job_id)
    trainer = bench.pids(job_id)[0]
    assert is_alive(trainer)
    cable.mend()
    bench.wait_for_no_runner()
    assert not is_alive(trainer)
    assert bench.metric_steps(job_id) == known
    assert bench.job(job_id).status == Status.queued


def test_an_outage_without_end_ends_the_trainer(bench: Bench, cable: Cable):
    bench = Bench(bench.settings.model_copy(update={"outage_s": 4}), bench.database)
    job_id = bench.submit({"steps": 4000, "step_s": 0.05})
    bench.start(job_id)
    bench.wait(job_id, lambda job: job.status == Status.running)
    trainer = psutil.Process(bench.pids(job_id)[0])
    cable.cut()
    bench.wait_for_no_runner()
    assert not is_alive(trainer.pid)
    assert bench.job(job_id).status == Status.running
