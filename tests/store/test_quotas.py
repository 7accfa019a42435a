"""The limits of projects hold, whoever comes at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from store.attempts import Node, place
from store.database import Database
from store.errors import QuotaExceeded
from store.idempotency import create_or_replay
from store.jobs import existing_job, request_cancel
from store.projects import create_project, set_limits
from store.quotas import Quota, may_start, quotas
from store.reruns import retry_job
from store.states import Status
from tests.store.given import HOST, host, new_job, placed_job, queued_job


def test_a_full_queue_refuses_one_more_until_one_has_left(database: Database) -> None:
    with database.transaction() as session:
        set_limits(session, "default", {"most_queued": 2})
        first, _ = queued_job(session), queued_job(session)
        with pytest.raises(QuotaExceeded, match="project default has 2 of at most 2 jobs"):
            queued_job(session)
        create_project(session, "other")
        queued_job(session, project="other")
        request_cancel(session, first.id)
        queued_job(session)
        with pytest.raises(QuotaExceeded):
            retry_job(session, first.id)


def test_of_two_that_come_at_once_one_is_refused(database: Database) -> None:
    with database.transaction() as session:
        set_limits(session, "default", {"most_queued": 3})
        queued_job(session)
    at_once = threading.Barrier(6, timeout=30)

    def post(_: int) -> bool:
        at_once.wait()
        try:
            with database.transaction() as session:
                queued_job(session)
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(post, range(6))) == 2


def test_a_refused_job_leaves_its_idempotency_key_free(database: Database) -> None:
    with database.transaction() as session:
        set_limits(session, "default", {"most_queued": 0})
    with pytest.raises(QuotaExceeded), database.transaction() as session:
        create_or_replay(session, "key", b"body", new_job())
    with database.transaction() as session:
        set_limits(session, "default", {"most_queued": 1})
        assert create_or_replay(session, "key", b"body", new_job())[1]
    with database.transaction() as session:
        assert not create_or_replay(session, "key", b"body", new_job())[1]


def test_what_a_project_uses_is_what_its_jobs_hold(database: Database) -> None:
    with database.transaction() as session:
        assert quotas(session) == {}
        set_limits(session, "default", {"most_running": 2, "most_devices": 3})
        job = placed_job(session)
        waiting = queued_job(session)
        assert quotas(session) == {"default": Quota(2, 3, running=1, devices=1)}
        request_cancel(session, job.id)
        assert quotas(session)["default"].running == 0
        assert waiting.status == Status.queued


def test_no_job_starts_beyond_the_limits(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)
        two = queued_job(session, devices_per_node=2)
        for limits, allowed in (
            ({"most_running": 1, "most_devices": None}, False),
            ({"most_running": 2, "most_devices": 2}, False),
            ({"most_running": 2, "most_devices": 3}, True),
            ({"most_running": None, "most_devices": None}, True),
        ):
            set_limits(session, "default", limits)
            assert may_start(session, two) is allowed
        assert existing_job(session, job.id).status == Status.starting


def test_two_schedulers_do_not_fill_the_last_place_twice(database: Database) -> None:
    with database.transaction() as session:
        set_limits(session, "default", {"most_running": 1})
        host(session, devices=2)
        jobs = [queued_job(session), queued_job(session)]
    at_once = threading.Barrier(2, timeout=30)

    def start(number: int) -> bool:
        at_once.wait()
        with database.transaction() as session:
            return may_start(session, jobs[number]) and place(session, jobs[number], [Node(HOST, (number,))])

    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(start, range(2))) == 1
