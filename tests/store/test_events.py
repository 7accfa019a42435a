"""Job events and metrics, and following them by id."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from store.database import Database
from store.errors import NotFound
from store.events import add_event, list_events
from store.jobs import existing_job
from store.metrics import EVAL, TRAIN, list_metrics, record
from tests.store.given import queued_job


def test_events_come_oldest_first_and_continue_behind_an_id(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
        for number in range(5):
            add_event(session, job.id, "warning", f"warning {number}", data={"n": number}, time=float(number))
        first = list_events(session, job.id, limit=3)
        rest = list_events(session, job.id, after=first[-1].id)
        assert [event.message for event in first + rest] == ["", *(f"warning {n}" for n in range(5))]
        assert (rest[-1].data, rest[-1].time, rest[-1].attempt) == ({"n": 4}, 4.0, 1)


def test_an_event_of_an_unknown_job_is_refused(database: Database) -> None:
    with database.transaction() as session, pytest.raises(NotFound):
        add_event(session, "nope", "warning")


def test_metrics_of_a_later_attempt_replace_earlier_ones_under_a_new_id(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
        old = [record(session, job.id, 1, TRAIN, step, 0.0, {"loss": 9.0 - step}).id for step in (1, 2, 3)]
        record(session, job.id, 1, EVAL, 3, 0.0, {"eval_loss": 1.0})
        record(session, job.id, 2, TRAIN, 3, 1.0, {"loss": 0.5})

        metrics = list_metrics(session, job.id, TRAIN)
        assert [(metric.step, metric.attempt) for metric in metrics] == [(1, 1), (2, 1), (3, 2)]
        assert metrics[-1].id > max(old)
        assert [metric.kind for metric in list_metrics(session, job.id, after=old[-1])] == [EVAL, TRAIN]
        assert list_metrics(session, job.id, limit=1)[0].values == {"loss": 8.0}


def test_the_id_of_a_replaced_last_metric_is_never_given_again(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
        first = record(session, job.id, 1, TRAIN, 1, 0.0, {}).id
        assert record(session, job.id, 2, TRAIN, 1, 0.0, {}).id > first


def test_late_numbers_of_an_earlier_attempt_do_not_replace_those_of_a_later_one(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
        record(session, job.id, 2, TRAIN, 1, 0.0, {"loss": 2.0})
        record(session, job.id, 1, TRAIN, 1, 0.0, {"loss": 1.0})
        assert [metric.values for metric in list_metrics(session, job.id)] == [{"loss": 2.0}]


def test_events_and_metrics_move_the_jobs_time_of_change(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
    with database.transaction() as session:
        record(session, job.id, 1, TRAIN, 1, 0.0, {})
    with database.reading() as session:
        assert existing_job(session, job.id).updated_at >= job.updated_at


def test_a_follower_misses_nothing_that_concurrent_writers_commit(database: Database) -> None:
    """Ids of one job are given in commit order: what is seen later always has a higher id."""
    with database.transaction() as session:
        job_id = queued_job(session).id
    writing = threading.Event()
    writing.set()

    def write(writer: int) -> None:
        for number in range(25):
            with database.transaction() as session:
                add_event(session, job_id, "warning", f"{writer}-{number}")

    def follow() -> list[int]:
        ids: list[int] = []
        while True:
            is_last = not writing.is_set()
            with database.reading() as session:
                new = [event.id for event in list_events(session, job_id, after=ids[-1] if ids else 0)]
            ids += new
            if is_last and not new:
                return ids

    with ThreadPoolExecutor(5) as pool:
        follower = pool.submit(follow)
        for writer in [pool.submit(write, writer) for writer in range(4)]:
            writer.result(60)
        writing.clear()
        seen = follower.result(60)

    with database.reading() as session:
        assert seen == [event.id for event in list_events(session, job_id, limit=1000)]
    assert len(seen) == 101
