"""Jobs: create, list, cancel, retry, delete."""

import pytest
from sqlalchemy import delete, func, select, text, update

from store.attempts import Node, claim, place
from store.database import Database
from store.errors import Conflict, InvalidCursor, NotFound
from store.events import list_events
from store.idempotency import create_or_replay
from store.jobs import (
    create_job,
    delete_job,
    existing_ids,
    existing_job,
    explain_wait,
    get_job,
    list_jobs,
    queued_jobs,
    request_cancel,
    update_progress,
)
from store.reasons import Reason
from store.reports import Outcome, finish
from store.reruns import retry_job
from store.states import Status, transition
from store.tables import Base, Host, Job, JobEvent
from tests.store.given import HOST, OWNER, TTL_S, claimed_job, host, new_job, placed_job, queued_job


def finished_job(session, status: Status = Status.failed, reason: Reason = Reason.trainer_crashed) -> Job:
    job, _ = claimed_job(session)
    finish(session, job.id, 1, OWNER, Outcome(status, reason))
    return existing_job(session, job.id)


def test_of_many_ids_those_that_jobs_have_are_told(database: Database) -> None:
    with database.transaction() as session:
        known = {create_job(session, new_job()).id for _ in range(3)}
    asked = known | {f"{number:036d}" for number in range(2500)}
    with database.reading() as session:
        assert existing_ids(session, asked) == known
        assert existing_ids(session, ()) == set()


def test_a_new_job_is_queued_and_shows_what_was_asked_for(database: Database) -> None:
    given = {"zeta": 1, "alpha": {"x": [1, 2.5, None]}, "text": "nul \x00 and ü"}
    with database.transaction() as session:
        job_id = create_job(
            session,
            new_job(
                config_given=given, name="first", labels={"team": "a", "b": "c"}, priority=3, timeout_s=60.0
            ),
        ).id
    with database.reading() as session:
        job = existing_job(session, job_id)
        assert (job.status, job.reason, job.attempt, job.priority) == ("queued", "submitted", 1, 3)
        assert job.config_given == given
        assert list(job.config_given) == list(given), "the order of keys is the user's"
        assert job.labels == {"team": "a", "b": "c"}
        assert (job.progress, job.warnings, job.placement) == ({}, [], None)
        assert job.created_at == job.queued_at == job.updated_at
        assert [event.to_status for event in list_events(session, job_id)] == ["queued"]


def test_numbers_that_json_does_not_know_are_refused(database: Database) -> None:
    with pytest.raises(Exception, match="not JSON compliant"), database.transaction() as session:
        create_job(session, new_job(config_given={"learning_rate": float("nan")}))


def test_a_job_that_does_not_exist_is_none_or_not_found(database: Database) -> None:
    with database.reading() as session:
        assert get_job(session, "nope") is None
        assert get_job(session, "nul\x00") is None
        with pytest.raises(NotFound, match="nope"):
            existing_job(session, "nope")


def test_pages_run_from_the_newest_to_the_oldest_without_gap_or_repeat(database: Database) -> None:
    with database.transaction() as session:
        ids = [queued_job(session).id for _ in range(11)]
        # the same moment: the id decides
        session.execute(update(Job).where(Job.id.in_(ids[3:7])).values(created_at=1000.0))
    with database.reading() as session:
        seen, cursor = [], None
        while True:
            page = list_jobs(session, limit=3, cursor=cursor)
            seen += [(job.created_at, job.id) for job in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.items) == 3
    assert seen == sorted(seen, reverse=True)
    assert {job_id for _, job_id in seen} == set(ids)
    assert len(seen) == 11


def test_jobs_made_while_paging_do_not_shift_the_pages(database: Database) -> None:
    with database.transaction() as session:
        ids = [queued_job(session).id for _ in range(4)]
        first = list_jobs(session, limit=2)
    with database.transaction() as session:
        queued_job(session)
        second = list_jobs(session, limit=2, cursor=first.next_cursor)
    assert {job.id for job in first.items + second.items} == set(ids)


def test_filters_are_combined(database: Database) -> None:
    with database.transaction() as session:
        wanted = queued_job(session, name="n", labels={"team": "a", "stage": "x"}).id
        queued_job(session, name="n", labels={"team": "a", "stage": "y"})
        queued_job(session, name="n", labels={"team": "b", "stage": "x"})
        queued_job(session, name="other", labels={"team": "a", "stage": "x"})
        queued_job(session, name="n", task="dpo", labels={"team": "a", "stage": "x"})
        cancelled = queued_job(session, name="n", labels={"team": "a", "stage": "x"}).id
        request_cancel(session, cancelled)
        page = list_jobs(
            session, limit=10, status="queued", task="finetune", name="n", labels={"team": "a", "stage": "x"}
        )
        assert [job.id for job in page.items] == [wanted]
        assert [job.id for job in list_jobs(session, limit=10, status="cancelled").items] == [cancelled]
        assert list_jobs(session, limit=10, name="nobody's").items == []


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "!!!", "e30", "WzEsMl0", "WyJhIiwiYiJd", "W05hTiwiYSJd", "ü", "W" * 5000, "WzEuMCwiYSJd="],
)
def test_a_cursor_that_was_never_given_is_refused_with_the_remedy(database: Database, cursor: str) -> None:
    with database.reading() as session, pytest.raises(InvalidCursor, match=r"cursor: .* next_cursor"):
        list_jobs(session, limit=3, cursor=cursor)


def test_a_limit_out_of_range_is_refused(database: Database) -> None:
    with database.reading() as session:
        for limit in (0, -1, 1001):
            with pytest.raises(ValueError, match="expected 1 to 1000"):
                list_jobs(session, limit=limit)


def test_listing_goes_along_an_index_and_sorts_nothing(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
    explain = "EXPLAIN QUERY PLAN" if database.engine.dialect.name == "sqlite" else "EXPLAIN"
    columns = ("", "status = 'queued' AND", "task = 'finetune' AND", "name = 'n' AND")
    project = "project = 'default' AND"
    for column in (*columns, project, f"{project} status = 'queued' AND"):
        behind = f"(created_at, id) < ({job.created_at}, '{job.id}')"
        order = "ORDER BY created_at DESC, id DESC LIMIT 50"
        query = f"{explain} SELECT * FROM jobs WHERE {column} {behind} {order}"  # noqa: S608
        with database.reading() as session:
            if explain == "EXPLAIN":
                session.execute(text("SET LOCAL enable_seqscan = off"))
                session.execute(text("SET LOCAL enable_bitmapscan = off"))
            plan = "\n".join(str(row) for row in session.execute(text(query)))
        assert "ix_jobs" in plan, plan
        assert "TEMP B-TREE" not in plan, plan
        assert "Sort" not in plan, plan


def test_the_queue_is_ordered_by_priority_then_age(database: Database) -> None:
    with database.transaction() as session:
        low, first, second = (queued_job(session, priority=priority).id for priority in (0, 5, 5))
        request_cancel(session, queued_job(session, priority=9).id)
        assert [job.id for job in queued_jobs(session)] == [first, second, low]


def test_a_queued_job_says_what_it_waits_for(database: Database) -> None:
    with database.transaction() as session:
        waiting, placed = queued_job(session), placed_job(session)
        for job in (waiting, placed):
            explain_wait(session, job.id, "Needs 8 devices, 2 are free.")
        assert existing_job(session, waiting.id).message == "Needs 8 devices, 2 are free."
        assert existing_job(session, placed.id).message == ""
        assert len(list_events(session, waiting.id)) == 1


def test_cancelling_a_queued_job_ends_it_at_once(database: Database) -> None:
    with database.transaction() as session:
        job = request_cancel(session, queued_job(session).id)
        assert (job.status, job.reason) == ("cancelled", "user_cancelled")
        assert job.finished_at is not None


def test_cancelling_a_job_that_no_host_has_claimed_ends_it_and_no_host_can_claim_it_after(
    database: Database,
) -> None:
    with database.transaction() as session:
        job = placed_job(session)
        assert request_cancel(session, job.id).status == "cancelled"
        assert [event.to_status for event in list_events(session, job.id)][-2:] == ["stopping", "cancelled"]
        assert claim(session, job.id, 1, HOST, OWNER, ttl_s=TTL_S) is None
        assert place(session, queued_job(session), [Node(HOST, (0, 1))]), "its devices are free"


@pytest.mark.parametrize("is_running", [False, True])
def test_cancelling_a_claimed_job_asks_its_runner_and_asking_again_changes_nothing(
    database: Database, is_running: bool
) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        if is_running:
            transition(session, job.id, Status.running, reason=Reason.started)
        assert request_cancel(session, job.id).status == "stopping"
        count = len(list_events(session, job.id))
        assert request_cancel(session, job.id).status == "stopping"
        assert len(list_events(session, job.id)) == count


def test_a_finished_job_cannot_be_cancelled(database: Database) -> None:
    with database.transaction() as session:
        job = finished_job(session, Status.succeeded, Reason.completed)
        with pytest.raises(Conflict, match="is succeeded; only an unfinished job"):
            request_cancel(session, job.id)


def test_retrying_starts_the_next_attempt_with_fresh_counts(database: Database) -> None:
    with database.transaction() as session:
        job = finished_job(session)
        session.execute(update(Job).values(retries=2, infrastructure_faults=2))
        again = retry_job(session, job.id)
        assert (again.status, again.reason, again.attempt) == ("queued", "retried", 2)
        assert (again.retries, again.infrastructure_faults, again.finished_at) == (0, 0, None)


@pytest.mark.parametrize("action", [request_cancel, retry_job, delete_job])
def test_actions_on_an_unknown_job_are_not_found(database: Database, action) -> None:
    with database.transaction() as session, pytest.raises(NotFound, match="no job 'nope'"):
        action(session, "nope")


def test_only_failed_and_cancelled_jobs_can_be_retried(database: Database) -> None:
    with database.transaction() as session:
        queued = queued_job(session)
        done = finished_job(session, Status.succeeded, Reason.completed)
        for job in (queued, done):
            with pytest.raises(Conflict, match="only a failed or cancelled job"):
                retry_job(session, job.id)


def test_deleting_forgets_all_about_a_finished_job_but_its_history_and_nothing_else(
    database: Database,
) -> None:
    with database.transaction() as session:
        host(session)
        kept, _ = create_or_replay(session, "kept", b"1", new_job(labels={"a": "b"}))
        made, _ = create_or_replay(session, "key", b"1", new_job(labels={"a": "b"}))
        job = existing_job(session, made.id)
        assert place(session, job, [Node(HOST, (0,))])
        assert claim(session, job.id, 1, HOST, OWNER, ttl_s=TTL_S)
        finish(session, job.id, 1, OWNER, Outcome(Status.succeeded, Reason.completed))
    with database.transaction() as session:
        delete_job(session, job.id)
    with database.transaction() as session:
        assert get_job(session, job.id) is None
        for table in reversed(Base.metadata.sorted_tables):
            if "job_id" in table.c and table.name != JobEvent.__tablename__:
                left = session.execute(select(func.count()).where(table.c.job_id == job.id)).scalar_one()
                assert left == 0, table.name
        assert get_job(session, kept.id) is not None
        assert create_or_replay(session, "key", b"2", new_job())[1], "the key is free again"


def test_an_unfinished_job_cannot_be_deleted(database: Database) -> None:
    with database.transaction() as session:
        for job in (queued_job(session), placed_job(session)):
            with pytest.raises(Conflict, match="cancel it before you delete it"):
                delete_job(session, job.id)


def test_a_job_that_still_holds_devices_cannot_be_deleted(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        transition(session, job.id, Status.failed, reason=Reason.host_lost)
        with pytest.raises(Conflict, match="still winds it down"):
            delete_job(session, job.id)


def test_progress_is_merged_and_refused_from_an_outdated_attempt(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)
        assert update_progress(session, job.id, 1, step=1, total_steps=10)
        assert update_progress(session, job.id, 1, step=2, loss=0.5)
        assert not update_progress(session, job.id, 2, step=99)
        assert not update_progress(session, "nope", 1, step=99)
        assert existing_job(session, job.id).progress == {"step": 2, "total_steps": 10, "loss": 0.5}


def test_a_deleted_host_does_not_disturb_its_past_jobs(database: Database) -> None:
    with database.transaction() as session:
        job = finished_job(session)
        session.execute(delete(Host))
        assert existing_job(session, job.id).placement == [{"host": HOST, "devices": [0], "ranks": [0]}]
