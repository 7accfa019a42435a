"""Attempts that nobody keeps alive."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, update

from store.attempts import Node, claim, place, renew
from store.completion import is_done
from store.database import Database
from store.events import list_events
from store.hosts import busy_devices, live_hosts
from store.jobs import existing_job, request_cancel
from store.outbox import publish
from store.reaper import Reaped, reap
from store.reasons import Reason
from store.reports import Outcome, finish, report
from store.reruns import retry_job
from store.states import Status, transition
from store.tables import AttemptNode, JobEvent, OutboxMessage
from tests.store.given import HOST, OWNER, TTL_S, claimed_job, host, placed_job, queued_job, run_out_of_time


def reap_now(database: Database) -> list[Reaped]:
    with database.transaction() as session:
        return reap(session, grace_s=15, start_timeout_s=60)


def announce(database: Database) -> list[tuple[str, str, int]]:
    sent: list[tuple[str, str, int]] = []
    publish(database, lambda queue, job_id, attempt: sent.append((queue, job_id, attempt)), republish_s=30)
    return sent


def test_a_silent_attempt_is_ended_and_its_job_queued_again(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        transition(session, job.id, Status.running, reason=Reason.started)
    run_out_of_time(database, job.id)
    assert reap_now(database) == [Reaped(job.id, 1, Status.queued, Reason.host_lost)]
    assert reap_now(database) == []
    with database.transaction() as session:
        again = existing_job(session, job.id)
        assert (again.status, again.attempt, again.infrastructure_faults) == ("queued", 2, 1)
        assert f"No sign of life from {HOST}" in list_events(session, job.id)[-1].message
        assert busy_devices(session) == {}
        assert not renew(session, job.id, 1, OWNER, ttl_s=TTL_S).alive
        assert place(session, again, [Node(HOST, (0,))])


def test_an_attempt_within_its_lease_or_the_grace_time_is_left_alone(database: Database) -> None:
    with database.transaction() as session:
        job, taken = claimed_job(session)
        session.execute(update(AttemptNode).values(lease_until=taken.lease_until - TTL_S - 5))
    assert reap_now(database) == []
    with database.transaction() as session:
        assert renew(session, job.id, 1, OWNER, ttl_s=TTL_S).alive


def test_a_job_whose_hosts_are_lost_again_and_again_fails(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        job = queued_job(session, max_retries=9)
    for attempt in (1, 2, 3):
        with database.transaction() as session:
            assert place(session, existing_job(session, job.id), [Node(HOST, (0,))])
            assert claim(session, job.id, attempt, HOST, OWNER, ttl_s=TTL_S)
        run_out_of_time(database, job.id)
        (reaped,) = reap_now(database)
        assert reaped.status == (Status.failed if attempt == 3 else Status.queued)
    with database.reading() as session:
        failed = existing_job(session, job.id)
        assert (failed.reason, failed.retries) == ("host_lost", 0)
        assert "fault 3 in a row" in failed.message


def test_a_silent_attempt_of_a_job_that_was_to_stop_leaves_it_cancelled(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        request_cancel(session, job.id)
    run_out_of_time(database, job.id)
    assert reap_now(database) == [Reaped(job.id, 1, Status.cancelled, Reason.user_cancelled)]


def test_a_silent_attempt_that_has_kept_its_result_has_succeeded(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        result = {"t": 1.0, "type": "result", "key": "k", "files": []}
        assert report(session, job.id, 1, OWNER, [result], 100, start=0)
        assert is_done(session, job.id)
    run_out_of_time(database, job.id)
    assert reap_now(database) == [Reaped(job.id, 1, Status.succeeded, Reason.completed)]
    with database.reading() as session:
        assert existing_job(session, job.id).infrastructure_faults == 0
        assert busy_devices(session) == {}


def test_a_result_from_before_a_retry_does_not_end_the_job(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        result = {"t": 1.0, "type": "result", "key": "k", "files": []}
        report(session, job.id, 1, OWNER, [result], 100, start=0)
        request_cancel(session, job.id)
        finish(session, job.id, 1, OWNER, Outcome(Status.cancelled, Reason.user_cancelled))
        retry_job(session, job.id)
        assert not is_done(session, job.id)


def test_a_finished_job_is_never_reaped(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        finish(session, job.id, 1, OWNER, Outcome(Status.succeeded, Reason.completed))
    run_out_of_time(database, job.id)
    assert reap_now(database) == []


def test_an_announcement_that_no_host_takes_in_time_queues_the_job_again(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)
    assert announce(database) == [(f"host.{HOST}", job.id, 1)]
    assert reap_now(database) == []
    run_out_of_time(database, job.id)
    assert reap_now(database) == [Reaped(job.id, 1, Status.queued, Reason.start_timeout)]
    with database.transaction() as session:
        again = existing_job(session, job.id)
        assert (again.attempt, again.infrastructure_faults) == (2, 1)
        assert claim(session, job.id, 1, HOST, OWNER, ttl_s=TTL_S) is None
        assert session.execute(select(func.count()).select_from(OutboxMessage)).scalar_one() == 0


def test_a_job_that_no_host_takes_fails_in_the_end_and_the_host_gets_no_more(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        job_id = queued_job(session).id
    for attempt, status in ((1, Status.queued), (2, Status.queued), (3, Status.failed)):
        with database.transaction() as session:
            assert place(session, existing_job(session, job_id), [Node(HOST, (0,))])
        announce(database)
        run_out_of_time(database, job_id)
        assert reap_now(database) == [Reaped(job_id, attempt, status, Reason.start_timeout)]
    with database.reading() as session:
        failed = existing_job(session, job_id)
        assert failed.evidence is not None
        assert failed.evidence["host"] == HOST
        assert live_hosts(session, 60.0) == []


def test_a_placement_that_could_not_be_announced_does_not_time_out(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)
    run_out_of_time(database, job.id)
    assert reap_now(database) == []


def test_a_gang_with_one_silent_host_is_lost_and_the_other_keeps_its_devices_until_its_lease_ends(
    database: Database,
) -> None:
    with database.transaction() as session:
        host(session, "a")
        host(session, "b")
        job = queued_job(session, nodes=2)
        place(session, job, [Node("a", (0,)), Node("b", (0,))])
        for name in ("a", "b"):
            claim(session, job.id, 1, name, f"runner-{name}", ttl_s=TTL_S)
        silent = update(AttemptNode).where(AttemptNode.host == "b")
        session.execute(silent.values(lease_until=AttemptNode.lease_until - 1000))
    assert reap_now(database) == [Reaped(job.id, 1, Status.queued, Reason.host_lost)]
    with database.transaction() as session:
        assert busy_devices(session) == {"a": {0}}
        assert not renew(session, job.id, 1, "runner-a", ttl_s=TTL_S).alive
    run_out_of_time(database, job.id)
    assert reap_now(database) == []
    with database.reading() as session:
        assert busy_devices(session) == {}


@pytest.mark.parametrize("reapers", [4])
def test_several_reapers_end_each_attempt_once(database: Database, reapers: int) -> None:
    with database.transaction() as session:
        host(session, devices=8)
        jobs = [queued_job(session) for _ in range(8)]
        for device, job in enumerate(jobs):
            assert place(session, job, [Node(HOST, (device,))])
            assert claim(session, job.id, 1, HOST, OWNER, ttl_s=TTL_S)
    for job in jobs:
        run_out_of_time(database, job.id)
    with ThreadPoolExecutor(reapers) as pool:
        reaped = [one for many in pool.map(lambda _: reap_now(database), range(reapers)) for one in many]
    assert sorted(one.job_id for one in reaped) == sorted(job.id for job in jobs)
    with database.reading() as session:
        requeued = select(func.count()).where(JobEvent.reason == "host_lost")
        assert session.execute(requeued).scalar_one() == 8


def test_an_announcement_is_repeated_until_the_host_claims(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)
    assert announce(database) == [(f"host.{HOST}", job.id, 1)]
    assert announce(database) == []
    with database.transaction() as session:
        session.execute(update(OutboxMessage).values(due_at=OutboxMessage.due_at - 31))
    assert announce(database) == [(f"host.{HOST}", job.id, 1)]
    with database.transaction() as session:
        assert claim(session, job.id, 1, HOST, OWNER, ttl_s=TTL_S)
        session.execute(update(OutboxMessage).values(due_at=0.0))
    assert announce(database) == []


def test_what_the_broker_refuses_is_announced_later_and_what_it_took_is_not(database: Database) -> None:
    with database.transaction() as session:
        host(session, devices=3)
        jobs = [queued_job(session) for _ in range(3)]
        for device, job in enumerate(jobs):
            place(session, job, [Node(HOST, (device,))])
    sent: list[str] = []

    def send_one_then_fail(_queue: str, job_id: str, _attempt: int) -> None:
        if sent:
            raise ConnectionError("broker away")
        sent.append(job_id)

    with pytest.raises(ConnectionError):
        publish(database, send_one_then_fail, republish_s=30)
    assert [job_id for _, job_id, _ in announce(database)] == [job.id for job in jobs if job.id not in sent]
