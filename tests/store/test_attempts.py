"""Placing, claiming and keeping an attempt."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select

from store.attempts import Node, claim, host_queue, place, release, renew
from store.database import Database, database_now
from store.hosts import busy_devices
from store.jobs import create_job, existing_job, request_cancel
from store.reasons import Reason
from store.states import Status, transition
from store.tables import Attempt, AttemptNode, OutboxMessage
from tests.store.given import (
    HOST,
    OWNER,
    TTL_S,
    claimed_job,
    host,
    new_job,
    placed_job,
    queued_job,
    run_out_of_time,
)


def test_placing_starts_an_attempt_and_announces_it_to_every_host(database: Database) -> None:
    with database.transaction() as session:
        host(session, "a")
        host(session, "b")
        job = queued_job(session, nodes=2, devices_per_node=2)
        assert place(session, job, [Node("b", (0, 1)), Node("a", (1, 0))])
        placed = existing_job(session, job.id)
        assert (placed.status, placed.attempt) == ("starting", 1)
        assert placed.placement == [
            {"host": "b", "devices": [0, 1], "ranks": [0, 1]},
            {"host": "a", "devices": [1, 0], "ranks": [2, 3]},
        ]
        messages = session.execute(select(OutboxMessage).order_by(OutboxMessage.rank)).scalars().all()
        assert [(m.queue, m.job_id, m.attempt) for m in messages] == [
            (host_queue("b"), job.id, 1),
            (host_queue("a"), job.id, 1),
        ]


def test_a_device_is_never_given_twice_and_an_unknown_one_never(database: Database) -> None:
    with database.transaction() as session:
        placed_job(session)
        for devices in ((0,), (0, 1), (2,)):
            assert not place(session, queued_job(session), [Node(HOST, devices)])
        assert not place(session, queued_job(session), [Node("nowhere", (0,))])
        assert place(session, queued_job(session), [Node(HOST, (1,))])


def test_a_gang_is_placed_whole_or_not_at_all(database: Database) -> None:
    with database.transaction() as session:
        host(session, "free")
        placed_job(session)
        gang = queued_job(session, nodes=2)
        assert not place(session, gang, [Node("free", (0,)), Node(HOST, (0,))])
        assert "free" not in busy_devices(session)
        assert existing_job(session, gang.id).status == "queued"


def test_a_gang_without_hosts_or_with_a_host_twice_is_a_mistake(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        for nodes in ([], [Node(HOST, (0,)), Node(HOST, (1,))]):
            with pytest.raises(ValueError, match="each host once"):
                place(session, queued_job(session), nodes)


def test_a_job_that_is_not_queued_any_more_is_not_placed(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        job = queued_job(session)
        request_cancel(session, job.id)
        assert not place(session, job, [Node(HOST, (0,))])


def test_a_job_waits_until_its_former_hosts_have_let_go(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        transition(session, job.id, Status.queued, reason=Reason.trainer_crashed)
        again = existing_job(session, job.id)
        assert not place(session, again, [Node(HOST, (1,))])
        release(session, job.id, 1, OWNER)
        assert place(session, again, [Node(HOST, (1,))])


def test_of_many_schedulers_one_places_a_device(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        jobs = [queued_job(session) for _ in range(6)]

    def try_to_place(job) -> bool:
        with database.transaction() as session:
            return place(session, job, [Node(HOST, (0,))])

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(try_to_place, jobs)) == [False] * 5 + [True]


def test_a_claim_tells_the_runner_what_to_run(database: Database) -> None:
    with database.transaction() as session:
        host(session, "other")
        host(session)
        job = create_job(session, new_job(timeout_s=99.0, config_resolved={"max_steps": 7}))
        place(session, job, [Node("other", (0,)), Node(HOST, (1, 0))])
        now = database_now(session)
        taken = claim(session, job.id, 1, HOST, OWNER, ttl_s=TTL_S)
        assert taken is not None
        assert (taken.rank, taken.devices, taken.task) == (1, (1, 0), "finetune")
        assert taken.nodes == (Node("other", (0,)), Node(HOST, (1, 0)))
        assert (taken.config, taken.timeout_s, taken.events_offset) == ({"max_steps": 7}, 99.0, 0)
        assert now + TTL_S <= taken.lease_until <= now + TTL_S + 30
        assert [m.rank for m in session.execute(select(OutboxMessage)).scalars()] == [0]


def test_the_winner_of_a_claim_may_ask_again_and_nobody_else(database: Database) -> None:
    with database.transaction() as session:
        job, first = claimed_job(session)
        again = claim(session, job.id, 1, HOST, OWNER, ttl_s=TTL_S)
        assert again is not None
        assert again.nodes == first.nodes
        assert claim(session, job.id, 1, HOST, "somebody else", ttl_s=TTL_S) is None


def test_outdated_early_and_misdirected_claims_are_refused(database: Database) -> None:
    with database.transaction() as session:
        waiting, placed = queued_job(session), placed_job(session)
        assert claim(session, waiting.id, 1, HOST, OWNER, ttl_s=TTL_S) is None
        assert claim(session, placed.id, 2, HOST, OWNER, ttl_s=TTL_S) is None
        assert claim(session, placed.id, 0, HOST, OWNER, ttl_s=TTL_S) is None
        assert claim(session, placed.id, 1, "another host", OWNER, ttl_s=TTL_S) is None
        assert claim(session, "nope", 1, HOST, OWNER, ttl_s=TTL_S) is None
        transition(session, placed.id, Status.queued, reason=Reason.start_timeout)
        assert claim(session, placed.id, 1, HOST, OWNER, ttl_s=TTL_S) is None


def test_of_many_threads_one_wins_the_claim(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)

    def try_to_claim(number: int) -> bool:
        with database.transaction() as session:
            return claim(session, job.id, 1, HOST, f"runner-{number}", ttl_s=TTL_S) is not None

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(try_to_claim, range(8))) == 1


def test_of_many_processes_one_wins_the_claim(database: Database, database_url: str) -> None:
    with database.transaction() as session:
        job = placed_job(session)
    script = Path(__file__).with_name("claimer.py")
    claimers = [
        subprocess.Popen(
            [sys.executable, str(script), database_url, job.id, HOST, f"runner-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    try:
        for claimer in claimers:
            assert claimer.stdout is not None
            assert claimer.stdout.readline() == "ready\n"
        answers = [claimer.communicate("go\n", timeout=60)[0] for claimer in claimers]
    finally:
        for claimer in claimers:
            claimer.kill()
            claimer.wait()
    assert sorted(answers) == ["lost\n"] * 3 + ["won\n"]


def test_a_lease_is_renewed_for_its_owner_only(database: Database) -> None:
    with database.transaction() as session:
        job, taken = claimed_job(session)
        renewal = renew(session, job.id, 1, OWNER, ttl_s=2 * TTL_S)
        assert (renewal.alive, renewal.cancel_requested) == (True, False)
        node = session.get_one(AttemptNode, (job.id, 1, 0), populate_existing=True)
        assert node.lease_until is not None
        assert node.lease_until >= taken.lease_until + TTL_S - 1
        assert not renew(session, job.id, 1, "somebody else", ttl_s=TTL_S).alive
        assert not renew(session, job.id, 2, OWNER, ttl_s=TTL_S).alive
        assert not renew(session, "nope", 1, OWNER, ttl_s=TTL_S).alive


def test_a_lease_that_ran_out_can_be_renewed_until_it_is_reaped(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
    run_out_of_time(database, job.id)
    with database.transaction() as session:
        assert renew(session, job.id, 1, OWNER, ttl_s=TTL_S).alive
        transition(session, job.id, Status.queued, reason=Reason.host_lost)
        assert not renew(session, job.id, 1, OWNER, ttl_s=TTL_S).alive


def test_a_renewal_tells_of_a_cancel(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        request_cancel(session, job.id)
        renewal = renew(session, job.id, 1, OWNER, ttl_s=TTL_S)
        assert (renewal.alive, renewal.cancel_requested) == (True, True)


def test_the_database_itself_refuses_a_second_live_attempt(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)

    def add_another() -> None:
        with database.transaction() as session:
            session.add(Attempt(job_id=job.id, number=2, placed_at=0.0))

    with pytest.raises(Exception, match=r"uq_attempts_live|UNIQUE constraint failed: attempts.job_id"):
        add_another()
