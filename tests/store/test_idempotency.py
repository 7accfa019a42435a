"""One key, one job."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select

from store.database import Database
from store.errors import IdempotencyConflict
from store.idempotency import create_or_replay, find_replay
from store.job_rows import JobRow
from store.jobs import DEFAULT_PROJECT
from store.tables import Job
from tests.store.given import new_job


def test_the_same_key_and_body_give_the_same_job(database: Database) -> None:
    with database.transaction() as session:
        first, created = create_or_replay(session, "k", b"body", new_job())
    with database.transaction() as session:
        again, created_again = create_or_replay(session, "k", b"body", new_job())
    assert (created, created_again) == (True, False)
    assert first.id == again.id


def test_another_body_under_the_same_key_is_refused(database: Database) -> None:
    with database.transaction() as session:
        create_or_replay(session, "k", b"body", new_job())
    with database.transaction() as session:
        with pytest.raises(IdempotencyConflict, match="'k' was used for another request body"):
            create_or_replay(session, "k", b"other", new_job())
        with pytest.raises(IdempotencyConflict):
            find_replay(session, DEFAULT_PROJECT, "k", b"other")


def test_a_key_can_be_looked_up_without_creating_anything(database: Database) -> None:
    with database.transaction() as session:
        assert find_replay(session, DEFAULT_PROJECT, "k", b"body") is None
        job, _ = create_or_replay(session, "k", b"body", new_job())
        replayed = find_replay(session, DEFAULT_PROJECT, "k", b"body")
        assert replayed is not None
        assert replayed.id == job.id


def test_a_rolled_back_request_leaves_its_key_free(database: Database) -> None:
    def fail_after_creating() -> None:
        with database.transaction() as session:
            create_or_replay(session, "k", b"body", new_job())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_creating()
    with database.transaction() as session:
        assert create_or_replay(session, "k", b"other", new_job())[1]


def test_a_request_that_waits_for_another_one_of_its_key_replays_it(database: Database) -> None:
    """The second starts while the first has not committed yet."""
    second: list[tuple[JobRow, bool]] = []

    def post() -> None:
        other = Database(str(database.url.render_as_string(hide_password=False)))
        with other.transaction() as session:
            second.append(create_or_replay(session, "k", b"body", new_job()))
        other.dispose()

    thread = threading.Thread(target=post)
    with database.transaction() as session:
        job, _ = create_or_replay(session, "k", b"body", new_job())
        thread.start()
        thread.join(0.1)
        assert second == []
    thread.join(20)
    assert [(replayed.id, created) for replayed, created in second] == [(job.id, False)]


def test_a_hundred_concurrent_requests_with_five_keys_make_five_jobs(database: Database) -> None:
    def post(number: int) -> tuple[str, bool]:
        with database.transaction() as session:
            job, created = create_or_replay(session, f"key-{number % 5}", b"body", new_job())
        return job.id, created

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(post, range(100)))

    assert sum(created for _, created in answers) == 5
    assert sorted(Counter(job_id for job_id, _ in answers).values()) == [20] * 5
    with database.reading() as session:
        assert session.execute(select(func.count()).select_from(Job)).scalar_one() == 5
