"""Announcements: written with the change of status, kept until they have arrived or are given up."""

import json

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.database import Database
from store.events import list_events
from store.jobs import delete_job, request_cancel
from store.reasons import Reason
from store.states import Status, transition
from store.tables import Job, Webhook, WebhookDelivery
from store.webhooks import (
    PAUSES_S,
    Answer,
    NewWebhook,
    announce,
    begin_try,
    due_deliveries,
    end_try,
    event_type,
    list_deliveries,
    new_secret,
    redeliver,
    secret_key,
)
from tests.store.given import placed_job, queued_job

ALL = tuple(event_type(status) for status in Status)
HOOK = NewWebhook("https://example.com/hook", "encrypted", ALL)
OK, AWAY, GONE = Answer(204), Answer(503, "answered 503"), Answer(410, "answered 410")


def deliveries(session: Session, job_id: str) -> list[WebhookDelivery]:
    return list_deliveries(session, job_id, 0, 100)


def try_all(session: Session, answer: Answer) -> int:
    """Try whatever is due."""
    due = due_deliveries(session, 100)
    for delivery_id, _, _ in due:
        tried = begin_try(session, delivery_id)
        assert tried is not None
        end_try(session, tried, answer)
    return len(due)


def let_time_pass(session: Session) -> None:
    session.execute(update(WebhookDelivery).values(due_at=WebhookDelivery.due_at - 200_000))


def test_every_change_of_status_is_announced_in_its_own_transaction(database: Database) -> None:
    with database.transaction() as session:
        job = placed_job(session, webhook=HOOK, name="a ü", labels={"team": "x"})
        transition(session, job.id, Status.failed, reason=Reason.bad_data, message="line 7")
    with database.reading() as session:
        rows = deliveries(session, job.id)
        assert [row.type for row in rows] == ["job.queued", "job.starting", "job.failed"]
        assert [row.event_id for row in rows] == [event.id for event in list_events(session, job.id)]
        payload = json.loads(rows[-1].payload)
        assert payload["type"] == "job.failed"
        assert payload["timestamp"] == payload["data"]["finished_at"]
        expected = {
            "id": job.id,
            "name": "a ü",
            "status": "failed",
            "reason": "bad_data",
            "message": "line 7",
        }
        expected |= {"fault": "data", "retry_helps": False, "labels": {"team": "x"}, "attempt": 1}
        assert payload["data"] == payload["data"] | expected | {"sequence": rows[-1].event_id}


def test_what_is_rolled_back_is_not_announced(database: Database) -> None:
    with database.transaction() as session:
        job_id = queued_job(session, webhook=HOOK).id

    def fail() -> None:
        with database.transaction() as session:
            request_cancel(session, job_id)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.reading() as session:
        assert [row.type for row in deliveries(session, job_id)] == ["job.queued"]


def test_only_what_the_receiver_wants_to_hear_is_announced(database: Database) -> None:
    with database.transaction() as session:
        wanted = NewWebhook(HOOK.url, HOOK.secret, ("job.cancelled",))
        job_id = queued_job(session, webhook=wanted).id
        request_cancel(session, job_id)
        other = queued_job(session).id
        request_cancel(session, other)
        assert [row.type for row in deliveries(session, job_id)] == ["job.cancelled"]
        assert deliveries(session, other) == []


def test_a_delivery_is_tried_until_it_arrives_under_one_id_and_with_the_same_bytes(
    database: Database,
) -> None:
    with database.transaction() as session:
        job_id = queued_job(session, webhook=HOOK).id
        seen = set()
        for attempt in range(1, 4):
            (due,) = due_deliveries(session, 10)
            tried = begin_try(session, due[0])
            assert tried is not None
            assert begin_try(session, due[0]) is None
            assert tried.attempt == attempt
            seen.add((tried.id, tried.payload))
            end_try(session, tried, AWAY if attempt < 3 else OK)
            let_time_pass(session)
        assert len(seen) == 1
        assert due_deliveries(session, 10) == []
        (row,) = deliveries(session, job_id)
        assert (row.status, row.attempts, row.answer_code, row.error) == ("delivered", 3, 204, "")


def test_the_pauses_follow_the_schedule_and_then_the_delivery_is_given_up(database: Database) -> None:
    with database.transaction() as session:
        job_id = queued_job(session, webhook=HOOK).id
        for pause in PAUSES_S:
            assert try_all(session, AWAY) == 1
            (row,) = deliveries(session, job_id)
            assert 0.85 * pause < row.due_at - (row.tried_at or 0.0) < 1.15 * pause + 5
            let_time_pass(session)
        assert try_all(session, AWAY) == 1
        (row,) = deliveries(session, job_id)
        assert (row.status, row.attempts) == ("given_up", len(PAUSES_S) + 1)
        assert 2.5 < sum(PAUSES_S) / 86_400 < 3.5


def test_a_try_whose_process_died_is_made_again(database: Database) -> None:
    with database.transaction() as session:
        queued_job(session, webhook=HOOK)
        ((delivery_id, _, _),) = due_deliveries(session, 10)
        dead = begin_try(session, delivery_id)
        assert due_deliveries(session, 10) == []
        let_time_pass(session)
        tried = begin_try(session, delivery_id)
        assert dead is not None
        assert tried is not None
        assert (tried.id, tried.attempt) == (dead.id, 2)
        end_try(session, dead, GONE)
        assert session.execute(select(Webhook.disabled_at)).scalar_one() is None
        end_try(session, tried, OK)


def test_a_delivery_that_fails_does_not_hold_back_the_next(database: Database) -> None:
    with database.transaction() as session:
        job_id = queued_job(session, webhook=HOOK).id
        assert try_all(session, AWAY) == 1
        request_cancel(session, job_id)
        assert try_all(session, OK) == 1
        assert [row.status for row in deliveries(session, job_id)] == ["waiting", "delivered"]


def test_a_receiver_that_is_gone_hears_nothing_more_until_somebody_asks(database: Database) -> None:
    with database.transaction() as session:
        job_id = queued_job(session, webhook=HOOK).id
        assert try_all(session, GONE) == 1
        request_cancel(session, job_id)
        assert [row.status for row in deliveries(session, job_id)] == ["given_up"]
        assert redeliver(session, job_id, None) == 1
        assert try_all(session, OK) == 1
        assert session.execute(select(Webhook.disabled_at)).scalar_one() is None


def test_what_has_arrived_is_sent_again_only_by_name(database: Database) -> None:
    with database.transaction() as session:
        job_id = queued_job(session, webhook=HOOK).id
        assert try_all(session, OK) == 1
        (row,) = deliveries(session, job_id)
        assert redeliver(session, job_id, None) == 0
        assert redeliver(session, job_id, "nope") == 0
        assert redeliver(session, job_id, row.id) == 1
        assert [due[0] for due in due_deliveries(session, 10)] == [row.id]


def test_deliveries_go_with_their_job(database: Database) -> None:
    with database.transaction() as session:
        job_id = queued_job(session, webhook=HOOK).id
        request_cancel(session, job_id)
        delete_job(session, job_id)
        assert session.execute(select(WebhookDelivery.id)).all() == []
        assert session.execute(select(Job.id)).all() == []
        announce(session, job_id, 1)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_c2hvcnQ=", "c" * 44, "whsec_!!!", "whsec_" + "A" * 100]
)
def test_a_secret_is_one_of_standard_webhooks(secret: str) -> None:
    assert secret_key(secret) is None
    made = secret_key(new_secret())
    assert made is not None
    assert len(made) == 32
