import time

import pytest
from sqlalchemy import update

from store.hosts import cordon_host, register_host, set_accepts_jobs
from store.projects import create_project, set_limits
from store.states import Status
from store.tables import AttemptNode, Host, Job, OutboxMessage
from tests.worker.bench import Bench
from tests.worker.waiting import wait_until
from worker.celery_app import make_app
from worker.scheduler import Scheduler


def scheduler(bench: Bench) -> Scheduler:
    return Scheduler(bench.settings, bench.database, make_app(bench.settings))


def register(bench: Bench, name: str = "host-a", devices: int = 1) -> None:
    with bench.database.transaction() as session:
        register_host(session, name, device="cpu", devices=[{"index": n} for n in range(devices)])


def queue_length(bench: Bench, host: str = "host-a") -> int:
    with make_app(bench.settings).connection_for_write() as connection:
        return connection.default_channel._size(f"host.{host}")  # pyright: ignore[reportAttributeAccessIssue]


def test_a_job_is_placed_and_its_host_told_once(bench: Bench):
    register(bench)
    job_id = bench.submit()
    active = scheduler(bench)
    active.tick()
    active.tick()
    assert bench.job(job_id).status == Status.starting
    assert bench.job(job_id).placement == [{"host": "host-a", "devices": [0], "ranks": [0]}]
    assert queue_length(bench) == 1


def test_a_job_waits_for_its_projects_limit_and_starts_when_it_is_raised(bench: Bench):
    register(bench, devices=2)
    with bench.database.transaction() as session:
        set_limits(session, "default", {"most_running": 1})
    first, second = bench.submit(), bench.submit()
    active = scheduler(bench)
    active.tick()
    active.tick()
    assert (bench.job(first).status, bench.job(second).status) == (Status.starting, Status.queued)
    assert bench.job(second).message == "project default runs 1 job and may run 1"
    with bench.database.transaction() as session:
        set_limits(session, "default", {"most_running": None})
    active.tick()
    assert bench.job(second).status == Status.starting


def test_a_placement_that_nobody_claims_is_announced_again(bench: Bench):
    register(bench)
    bench.submit()
    active = scheduler(bench)
    active.tick()
    with bench.database.transaction() as session:
        session.execute(
            update(OutboxMessage).values(due_at=OutboxMessage.due_at - bench.settings.republish_s)
        )
    active.tick()
    assert queue_length(bench) == 2


def test_without_a_broker_jobs_are_placed_and_their_hosts_told_later(bench: Bench, broker):
    register(bench)
    broker.stop()
    job_id = bench.submit()
    scheduler(bench).tick()
    assert bench.job(job_id).status == Status.starting
    with bench.database.reading() as session:
        assert session.query(OutboxMessage).one().first_published_at is None


def test_the_more_urgent_job_comes_first_then_the_older(bench: Bench):
    register(bench)
    usual, later, urgent = bench.submit(), bench.submit(), bench.submit(priority=5)
    scheduler(bench).tick()
    assert bench.job(urgent).status == Status.starting
    behind = f"waiting behind job {usual}, which is before it in the queue for devices of kind cpu"
    assert bench.job(usual).message == "waiting for 1 device on a host of kind cpu: all 1 are in use"
    assert bench.job(later).message == behind


def test_why_a_job_waits_is_said_without_an_event_at_every_pass(bench: Bench):
    job_id = bench.submit()
    active = scheduler(bench)
    active.tick()
    assert bench.job(job_id).message == "no host with devices of kind cpu is up and takes jobs"
    register(bench, devices=2)
    big = bench.submit(devices_per_node=4, priority=1)
    for _ in range(3):
        active.tick()
    assert bench.job(job_id).status == Status.starting
    assert bench.job(job_id).message == ""
    assert bench.job(big).message.startswith(
        "needs 4 devices on a host of kind cpu, but none of the 1 that are up"
    )
    assert len(bench.events(big)) == 1


@pytest.mark.parametrize("trouble", ["silent", "withdrawn", "cordoned"])
def test_a_host_that_is_silent_withdrawn_or_cordoned_gets_nothing(bench: Bench, trouble: str):
    register(bench)
    with bench.database.transaction() as session:
        if trouble == "silent":
            session.execute(update(Host).values(heartbeat_at=Host.heartbeat_at - 60))
        elif trouble == "withdrawn":
            set_accepts_jobs(session, "host-a", False)
        else:
            cordon_host(session, "host-a")
    job_id = bench.submit()
    scheduler(bench).tick()
    assert bench.job(job_id).status == Status.queued


def test_a_job_waits_until_its_earlier_attempt_has_let_go_of_its_devices(bench: Bench):
    register(bench, devices=2)
    job_id = bench.submit()
    active = scheduler(bench)
    active.tick()
    with bench.database.transaction() as session:
        session.execute(update(AttemptNode).values(owner="host-a/somebody"))
    bench.take_away(job_id)
    active.tick()
    assert bench.job(job_id).status == Status.queued
    assert "earlier attempt to let go of its devices on host-a" in bench.job(job_id).message


def test_one_scheduler_works_at_a_time_and_another_takes_over_when_it_steps_down(bench: Bench):
    first, second = scheduler(bench), scheduler(bench)
    first.tick()
    register(bench)
    job_id = bench.submit()
    second.tick()
    assert bench.job(job_id).status == Status.queued
    first.step_down()
    second.tick()
    assert bench.job(job_id).status == Status.starting


def lose(bench: Bench) -> str:
    """A placed and claimed job whose lease is long over."""
    job_id = bench.submit()
    bench.place(job_id)
    with bench.database.transaction() as session:
        session.execute(update(AttemptNode).values(owner="host-a/gone", lease_until=1.0))
    return job_id


def test_a_lost_job_is_queued_again(bench: Bench):
    bench = Bench(bench.settings.model_copy(update={"heartbeat_s": 1e-9}), bench.database)
    job_id = lose(bench)
    scheduler(bench).tick()
    job = bench.job(job_id)
    assert (job.status, job.attempt) == (Status.queued, 2)


def test_after_an_outage_of_the_database_runners_may_renew_before_their_jobs_count_as_lost(bench: Bench):
    job_id = lose(bench)
    scheduler(bench).tick()
    assert (bench.job(job_id).status, bench.job(job_id).attempt) == (Status.starting, 1)


def test_when_the_clock_of_the_database_was_set_runners_may_renew_before_their_jobs_count_as_lost(
    bench: Bench,
):
    bench = Bench(bench.settings.model_copy(update={"heartbeat_s": 0.1}), bench.database)
    set_by = 0.0
    active = Scheduler(
        bench.settings, bench.database, make_app(bench.settings), clock=lambda: time.monotonic() - set_by
    )
    lost = lose(bench)

    def reaped(job_id: str) -> bool:
        active.tick()
        return bench.job(job_id).attempt == 2

    wait_until(lambda: reaped(lost))
    job_id = bench.submit()
    with bench.database.transaction() as session:
        session.execute(update(AttemptNode).values(ended_at=1.0))
    bench.place(job_id)
    with bench.database.transaction() as session:
        session.execute(
            update(AttemptNode)
            .where(AttemptNode.job_id == job_id)
            .values(owner="host-a/somebody", lease_until=1.0)
        )
    set_by = 3600.0
    assert not reaped(job_id)
    wait_until(lambda: reaped(job_id))


def test_a_job_rests_until_its_time_and_says_so(bench: Bench):
    register(bench)
    job_id = bench.submit()
    with bench.database.transaction() as session:
        session.execute(update(Job).values(not_before=Job.created_at + 1000))
    active = scheduler(bench)
    active.tick()
    assert bench.job(job_id).status == Status.queued
    assert bench.job(job_id).message.startswith("waits until 2")
    with bench.database.transaction() as session:
        session.execute(update(Job).values(not_before=Job.created_at - 1))
    active.tick()
    assert bench.job(job_id).status == Status.starting


def test_a_job_with_a_time_limit_may_use_what_is_kept_for_one_that_waits(bench: Bench):
    active = scheduler(bench)
    register(bench, devices=2)
    bench.submit(timeout_s=3600)
    active.tick()
    big = bench.submit(devices_per_node=2)
    endless, short = bench.submit(), bench.submit(timeout_s=60)
    active.tick()
    statuses = [bench.job(job_id).status for job_id in (big, endless, short)]
    assert statuses == [Status.queued, Status.queued, Status.starting]


def test_the_project_that_holds_fewer_devices_goes_first(bench: Bench):
    active = scheduler(bench)
    with bench.database.transaction() as session:
        create_project(session, "other")
    register(bench, devices=2)
    bench.submit()
    active.tick()
    first, second = bench.submit(), bench.submit(project="other")
    active.tick()
    assert [bench.job(job_id).status for job_id in (first, second)] == [Status.queued, Status.starting]


def test_a_job_makes_room_for_a_more_urgent_one_and_waits_for_devices_itself(bench: Bench):
    settings = bench.settings.model_copy(update={"preemption": True})
    active = Scheduler(settings, bench.database, make_app(settings))
    usual = bench.submit({"steps": 400, "step_s": 0.05}, max_retries=0)
    bench.start(usual)
    bench.wait(usual, lambda job: job.progress.get("step", 0) >= 3)
    equal = bench.submit()
    register(bench)
    active.tick()
    assert bench.job(equal).message == "waiting for 1 device on a host of kind cpu: all 1 are in use"
    urgent = bench.submit(priority=1)
    told = set()
    for _ in range(3):
        register(bench)
        active.tick()
        told.add(bench.job(urgent).message)
    why = "waiting for 1 device on a host of kind cpu: all 1 are in use; 1 job makes room for it"
    assert why in told
    bench.wait_for_no_runner()
    stopped = bench.job(usual)
    assert (stopped.status, stopped.reason, stopped.attempt) == (Status.queued, "preempted", 2)
    assert (
        stopped.message == "A more urgent job needed the devices. The trainer has stopped with a checkpoint."
    )
    register(bench)
    active.tick()
    assert (bench.job(urgent).status, bench.job(equal).status) == (Status.starting, Status.queued)
    assert stopped.not_before is not None
    assert [len(bench.events(job_id, "preemption")) for job_id in (usual, equal, urgent)] == [1, 0, 1]
