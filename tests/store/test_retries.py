"""Whether a failed attempt is repeated, at whose charge, and after which rest."""

import pytest
from sqlalchemy import update

from store.attempts import Node, claim, place
from store.clock import database_now
from store.database import Database
from store.jobs import existing_job
from store.reasons import FAULTS, INTERRUPTIONS, REASONS, Fault, Reason, Retry
from store.reports import Outcome, finish, report
from store.reruns import retry_job
from store.retry_policy import RetryPolicy
from store.states import Status
from store.tables import Job
from tests.store.given import HOST, OWNER, TTL_S, host, queued_job

POLICY = RetryPolicy(fault_limit=3, backoff_s=10.0, longest_backoff_s=60.0)


def fail(session, job_id: str, reason: Reason) -> Job:
    """Run the job's next attempt into a failure; the job as that leaves it."""
    job = existing_job(session, job_id)
    assert place(session, job, [Node(HOST, (0,))])
    assert claim(session, job_id, job.attempt, HOST, OWNER, ttl_s=TTL_S)
    assert finish(session, job_id, job.attempt, OWNER, Outcome(Status.failed, reason), POLICY)
    return existing_job(session, job_id)


def rest_s(session, job: Job) -> float:
    return (job.not_before or 0.0) - database_now(session)


@pytest.mark.parametrize("reason", [r for r in sorted(FAULTS) if REASONS[r].fault is Fault.infrastructure])
def test_a_fault_of_the_infrastructure_costs_no_retry_but_many_in_a_row_fail_the_job(
    database: Database, reason: Reason
) -> None:
    with database.transaction() as session:
        host(session)
        job_id = queued_job(session, max_retries=1).id
        assert [fail(session, job_id, reason).status for _ in range(3)] == ["queued", "queued", "failed"]
        failed = existing_job(session, job_id)
        assert (failed.retries, failed.infrastructure_faults) == (0, 3)
        assert (
            failed.message
            == "This was fault 3 in a row without a new checkpoint; the job is not tried again."
        )


@pytest.mark.parametrize(
    "reason", [Reason.out_of_memory, Reason.nan_loss, Reason.bad_config, Reason.bad_data]
)
def test_what_would_happen_again_is_not_repeated(database: Database, reason: Reason) -> None:
    with database.transaction() as session:
        host(session)
        job_id = queued_job(session, max_retries=5).id
        failed = fail(session, job_id, reason)
        assert (failed.status, failed.retries) == ("failed", 0)


def test_each_setback_in_a_row_doubles_the_rest_up_to_a_limit(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        job_id = queued_job(session, max_retries=9).id
        for longest in (10.0, 20.0, 40.0, 60.0, 60.0):
            rest = rest_s(session, fail(session, job_id, Reason.trainer_crashed))
            assert 0.7 * longest < rest <= longest


def test_progress_ends_a_row_of_setbacks(database: Database) -> None:
    checkpoint = {"t": 1.0, "type": "checkpoint", "name": "checkpoint-1", "step": 1, "key": "k", "files": []}
    with database.transaction() as session:
        host(session)
        job_id = queued_job(session).id
        for _ in range(2):
            fail(session, job_id, Reason.trainer_killed)
        job = existing_job(session, job_id)
        assert place(session, job, [Node(HOST, (0,))])
        assert claim(session, job_id, job.attempt, HOST, OWNER, ttl_s=TTL_S)
        assert report(session, job_id, job.attempt, OWNER, [checkpoint], 10, start=0)
        assert finish(session, job_id, job.attempt, OWNER, Outcome(Status.failed, Reason.host_lost), POLICY)
        again = existing_job(session, job_id)
        assert (again.status, again.infrastructure_faults, again.setbacks) == ("queued", 1, 1)
        assert rest_s(session, again) <= 10.0


def test_who_made_room_rests_but_is_charged_nothing_however_often(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        job_id = queued_job(session).id
        for _ in range(5):
            job = fail(session, job_id, Reason.preempted)
            assert (job.status, job.retries, job.setbacks, job.infrastructure_faults) == ("queued", 0, 0, 0)
            assert 0 < rest_s(session, job) <= 10.0


@pytest.mark.parametrize("reason", sorted(INTERRUPTIONS - {Reason.preempted}))
def test_an_interruption_is_followed_by_no_rest(database: Database, reason: Reason) -> None:
    with database.transaction() as session:
        host(session)
        job_id = queued_job(session).id
        assert [fail(session, job_id, reason).status for _ in range(5)] == ["queued"] * 5
        job = existing_job(session, job_id)
        assert (job.not_before, job.setbacks, job.infrastructure_faults) == (None, 0, 0)


def test_a_retry_that_the_user_asks_for_begins_anew_and_at_once(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        job_id = queued_job(session).id
        fail(session, job_id, Reason.trainer_crashed)
        session.execute(update(Job).values(not_before=database_now(session) + 1000))
        again = retry_job(session, job_id)
        assert (again.status, again.not_before, again.setbacks) == ("queued", None, 0)


def test_the_table_says_of_every_reason_what_to_do_about_it() -> None:
    assert set(REASONS) == set(Reason)
    for reason, row in REASONS.items():
        assert row.meaning.endswith("."), reason
        if row.fault in (Fault.user, Fault.data, Fault.infrastructure):
            assert row.remedy, reason
        if row.retry in (Retry.bounded, Retry.free):
            assert row.retry_helps, reason
        if row.fault is Fault.infrastructure:
            assert row.retry in (Retry.bounded, Retry.free), reason
