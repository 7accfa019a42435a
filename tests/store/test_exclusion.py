"""Hosts that get no more jobs because of what has failed there."""

import pytest
from sqlalchemy import select, update

from store.attempts import Node, claim, place
from store.clock import database_now
from store.database import Database
from store.exclusion import hosts_to_avoid, is_excluded, note_failure
from store.hosts import list_hosts, live_hosts, register_host, uncordon_host
from store.jobs import existing_job
from store.reasons import Reason
from store.reports import Outcome, finish
from store.retry_policy import ExclusionPolicy, RetryPolicy
from store.states import Status
from store.tables import Host, JobEvent
from tests.store.given import OWNER, TTL_S, host, queued_job

POLICY = ExclusionPolicy(limit=3, window_s=100.0, duration_s=50.0)


def live(session) -> list[str]:
    return [row.name for row in live_hosts(session, 60.0)]


def run(session, name: str, outcome: Outcome) -> str:
    """A new job's attempt on a host, up to its end; the job's id."""
    job_id = queued_job(session).id
    job = existing_job(session, job_id)
    assert place(session, job, [Node(name, (0,))])
    assert claim(session, job_id, 1, name, OWNER, ttl_s=TTL_S)
    assert finish(session, job_id, 1, OWNER, outcome, RetryPolicy(exclusion=POLICY))
    return job_id


def failed(reason: Reason) -> Outcome:
    return Outcome(Status.failed, reason, "it failed")


@pytest.mark.parametrize("reason", [Reason.host_failed, Reason.start_timeout])
def test_what_fails_on_a_host_again_and_again_excludes_it_for_a_time(
    database: Database, reason: Reason
) -> None:
    with database.transaction() as session:
        host(session, "a")
        assert [note_failure(session, "a", "job", reason, POLICY) for _ in range(3)] == [False, False, True]
        assert live(session) == []
        (row,) = list_hosts(session)
        assert row.exclusion_reason == f"3 attempts failed there within 100 seconds ({reason})"
        assert session.execute(select(JobEvent.type)).scalars().all() == ["host_excluded"]
        register_host(session, "a", device="cpu", devices=[{"index": 0}])
        assert live(session) == []
        assert not is_excluded(row, database_now(session) + POLICY.duration_s)
        session.execute(update(Host).values(excluded_until=database_now(session) - 1))
        assert live(session) == ["a"]


def test_a_broken_device_excludes_at_once_until_somebody_says_otherwise(database: Database) -> None:
    with database.transaction() as session:
        host(session, "a")
        assert note_failure(session, "a", None, Reason.device_error, ExclusionPolicy(duration_s=0))
        assert live(session) == []
        uncordon_host(session, "a", actor="admin")
        assert live(session) == ["a"]
        (row,) = list_hosts(session)
        assert (row.exclusion_reason, row.failures) == ("", [])


def test_crashes_of_different_jobs_exclude_a_host_but_never_the_last_one(database: Database) -> None:
    with database.transaction() as session:
        host(session, "a")
        for _ in range(4):
            run(session, "a", failed(Reason.trainer_crashed))
        assert live(session) == ["a"]
        host(session, "b")
        run(session, "a", failed(Reason.trainer_killed))
        assert live(session) == ["b"]


def test_one_job_that_crashes_is_not_held_against_its_host_nor_what_a_success_follows(
    database: Database,
) -> None:
    with database.transaction() as session:
        host(session, "a")
        host(session, "b")
        for _ in range(5):
            assert not note_failure(session, "a", "the same", Reason.trainer_crashed, POLICY)
        run(session, "a", failed(Reason.trainer_crashed))
        run(session, "a", Outcome(Status.succeeded, Reason.completed))
        run(session, "a", failed(Reason.host_failed))
        run(session, "a", failed(Reason.bad_config))
        session.execute(
            update(Host).values(failures=[{"job_id": "x", "reason": "host_failed", "at": 0.0}] * 9)
        )
        run(session, "a", failed(Reason.trainer_crashed))
        assert live(session) == ["a", "b"]


def test_a_job_avoids_the_host_that_it_failed_on(database: Database) -> None:
    with database.transaction() as session:
        host(session, "a")
        queued_job(session)
        run(session, "a", Outcome(Status.failed, Reason.host_stopping, "it is drained"))
        job_id = run(session, "a", failed(Reason.host_failed))
        assert hosts_to_avoid(session) == {job_id: frozenset({"a"})}
