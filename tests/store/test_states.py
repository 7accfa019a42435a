"""The state machine: every pair of states with every reason, on both databases."""

import itertools

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.database import Database
from store.events import list_events
from store.jobs import existing_job
from store.reasons import FAULTS, Reason
from store.states import ACTIVE, TERMINAL, TRANSITIONS, Status, transition
from store.tables import Attempt, Job, JobEvent
from tests.store.given import claimed_job, placed_job, queued_job

KNOWN = {(target, reason) for (_, target), reasons in TRANSITIONS.items() for reason in reasons}


def put_into(session: Session, job_id: str, status: Status) -> None:
    session.execute(update(Job).where(Job.id == job_id).values(status=status))


def last_event(session: Session, job_id: str) -> tuple[int, str | None, str | None, str | None]:
    query = select(JobEvent).where(JobEvent.job_id == job_id).order_by(JobEvent.id.desc()).limit(1)
    event = session.execute(query).scalar_one()
    return event.id, event.from_status, event.to_status, event.reason


def test_a_transition_happens_exactly_when_the_table_allows_it(database: Database) -> None:
    with database.transaction() as session:
        job_id = queued_job(session).id
        for source, (target, reason) in itertools.product(Status, sorted(KNOWN)):
            put_into(session, job_id, source)
            attempt, before = existing_job(session, job_id).attempt, last_event(session, job_id)
            allowed = reason in TRANSITIONS.get((source, target), ())
            assert transition(session, job_id, target, reason=reason) is allowed, (source, target, reason)
            after = existing_job(session, job_id)
            if allowed:
                assert last_event(session, job_id)[1:] == (source, target, reason)
                assert (after.status, after.attempt) == (target, attempt + (target is Status.queued))
            else:
                assert last_event(session, job_id) == before
                assert (after.status, after.attempt) == (source, attempt)


def test_a_reason_that_never_leads_to_a_status_is_a_mistake(database: Database) -> None:
    with database.transaction() as session:
        job_id = queued_job(session).id
        for target, reason in itertools.product(Status, Reason):
            if (target, reason) not in KNOWN:
                with pytest.raises(ValueError, match=f"may become {target} because of {reason}"):
                    transition(session, job_id, target, reason=reason)


def test_terminal_states_are_left_only_by_a_retry_and_success_never() -> None:
    leaving = {pair: reasons for pair, reasons in TRANSITIONS.items() if pair[0] in TERMINAL}

    assert leaving == {
        (Status.failed, Status.queued): {Reason.retried},
        (Status.cancelled, Status.queued): {Reason.retried},
    }


def test_every_state_is_reached_and_every_reason_used() -> None:
    assert {target for _, target in TRANSITIONS} == set(Status)
    used = {reason for reasons in TRANSITIONS.values() for reason in reasons}
    assert used == set(Reason) - {Reason.submitted}


def test_a_fault_can_fail_a_job_wherever_its_trainer_may_run() -> None:
    assert TRANSITIONS[Status.starting, Status.failed] == FAULTS
    assert TRANSITIONS[Status.running, Status.failed] == FAULTS - {Reason.start_timeout}
    assert {Status.starting, Status.running, Status.stopping} == ACTIVE


def test_the_event_tells_from_where_to_where_and_why(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)
        transition(session, job.id, Status.failed, reason=Reason.bad_data, message="line 7", data={"line": 7})
    with database.reading() as session:
        event = list_events(session, job.id)[-1]
        assert (event.from_status, event.to_status, event.reason) == ("starting", "failed", "bad_data")
        assert (event.message, event.data, event.type, event.attempt) == ("line 7", {"line": 7}, "status", 1)
        failed = existing_job(session, job.id)
        assert (failed.reason, failed.message) == ("bad_data", "line 7")
        assert failed.finished_at == event.time == failed.updated_at


def test_the_guard_refuses_another_attempt_another_source_and_an_unknown_job(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)
        refused = [
            transition(session, job.id, Status.running, reason=Reason.started, attempt=2),
            transition(session, job.id, Status.failed, reason=Reason.timed_out, from_={Status.running}),
            transition(session, "no-such-job", Status.running, reason=Reason.started),
        ]
        assert refused == [False, False, False]
        assert existing_job(session, job.id).status == "starting"
        assert len(list_events(session, job.id)) == 2


def test_a_rolled_back_transition_leaves_neither_status_nor_event(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)

    def fail_after_the_transition() -> None:
        with database.transaction() as session:
            transition(session, job.id, Status.running, reason=Reason.started)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_the_transition()
    with database.reading() as session:
        assert existing_job(session, job.id).status == "starting"
        assert [event.to_status for event in list_events(session, job.id)] == ["queued", "starting"]


def test_leaving_the_active_states_ends_the_attempt(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        transition(session, job.id, Status.queued, reason=Reason.host_stopping, message="maintenance")
        attempt = session.get_one(Attempt, (job.id, 1), populate_existing=True)
        assert attempt.ended_at is not None
        assert (attempt.reason, attempt.message) == ("host_stopping", "maintenance")
        job = existing_job(session, job.id)
        assert (job.attempt, job.placement, job.started_at) == (2, None, None)


def test_text_that_a_database_cannot_hold_is_stored_without_it(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session)
        transition(session, job.id, Status.failed, reason=Reason.trainer_crashed, message="a\x00b \ud800 ü")
    with database.reading() as session:
        assert existing_job(session, job.id).message == "ab ? ü"
