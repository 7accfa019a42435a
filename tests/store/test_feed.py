"""The events of all jobs: whoever follows them misses none, in whatever order they are committed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from sqlalchemy import select

from store.audit import add_action
from store.database import Database
from store.events import add_event
from store.feed import Filter, Horizon, all_events
from store.jobs import delete_job, request_cancel
from store.projects import create_project
from store.tables import JobEvent
from tests.store.given import queued_job


def read(database: Database, horizon: int, after: int = 0, wanted: Filter | None = None) -> list[JobEvent]:
    with database.reading() as session:
        return list(all_events(session, wanted or Filter(), after, horizon, 10_000))


def ids_of_all(database: Database) -> list[int]:
    with database.reading() as session:
        return list(session.execute(select(JobEvent.id).order_by(JobEvent.id)).scalars())


def test_what_is_committed_out_of_order_is_held_back_until_it_is_whole(database: Database) -> None:
    if database.url.get_backend_name() == "sqlite":
        pytest.skip("one writes at a time")
    with database.transaction() as session:
        jobs = [queued_job(session).id, queued_job(session).id]
    horizon = Horizon(database, patience_s=0.1)
    before = horizon.look()
    with database.transaction() as slow:
        first = add_event(slow, jobs[0], "warning", "written first, committed last").id
        with database.transaction() as quick:
            second = add_event(quick, jobs[1], "warning", "written last, committed first").id
        assert first < second
        assert read(database, horizon.look(), before) == []
    assert [event.id for event in read(database, horizon.look(), before)] == [first, second]


def test_who_only_reads_or_writes_elsewhere_holds_back_nothing(database: Database) -> None:
    if database.url.get_backend_name() == "sqlite":
        pytest.skip("one writes at a time")
    with database.transaction() as session:
        job = queued_job(session).id
    with database.reading() as reader, database.transaction() as other:
        list(reader.execute(select(JobEvent)).scalars())
        create_project(other, "elsewhere")
        other.rollback()
        with database.transaction() as session:
            newest = add_event(session, job, "warning").id
        assert Horizon(database, patience_s=0.1).look() == newest


def test_a_follower_sees_every_event_once_while_many_write(database: Database) -> None:
    with database.transaction() as session:
        jobs = [queued_job(session).id for _ in range(6)]
    over = threading.Event()
    seen: list[int] = []

    def write(number: int) -> None:
        random = Random(number)
        for _ in range(15):
            with database.transaction() as session:
                for _ in range(random.randint(1, 3)):
                    add_event(session, jobs[number], "warning")
                if random.random() < 0.2:
                    session.rollback()

    def follow() -> None:
        horizon = Horizon(database)
        while True:
            last = over.is_set()
            events = read(database, horizon.look(), seen[-1] if seen else 0)
            seen.extend(event.id for event in events)
            if last and not events:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(write, range(6)))
    over.set()
    follower.join(60)
    assert not follower.is_alive()
    assert seen == ids_of_all(database)


def test_filters_all_have_to_match(database: Database) -> None:
    with database.transaction() as session:
        create_project(session, "other")
        job, theirs = queued_job(session), queued_job(session, project="other")
        add_event(session, job.id, "warning", "w", actor="host a", time=100.0)
        add_action(session, "host_drained", "host a", project=None, actor="boss")
    newest = Horizon(database).look()

    def found(**conditions) -> list[tuple[str | None, str]]:
        return [(event.job_id, event.type) for event in read(database, newest, wanted=Filter(**conditions))]

    assert found(job_id=job.id) == [(job.id, "status"), (job.id, "warning")]
    assert found(project="other") == [(None, "project_created"), (theirs.id, "status")]
    assert found(type="warning", actor="host a", since=100.0, until=100.5) == [(job.id, "warning")]
    assert found(since=100.1, type="warning") == []
    assert found(until=100.0, type="warning") == []
    assert found(actor="boss") == [(None, "host_drained")]


def test_events_outlive_their_job_and_the_last_one_tells_who_has_deleted_it(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session, name="first")
        request_cancel(session, job.id, actor="boss")
        delete_job(session, job.id, actor="boss")
    events = read(database, Horizon(database).look(), wanted=Filter(job_id=job.id))
    assert [(event.type, event.actor) for event in events] == [
        ("status", ""),
        ("status", "boss"),
        ("deleted", "boss"),
    ]
    assert events[-1].data == {"name": "first", "task": "finetune", "status": "cancelled"}
    assert events[-1].project == "default"
