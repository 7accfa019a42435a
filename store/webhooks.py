"""Announcements of a job's changes of status: written with the change, sent later, again until they arrive.

What is sent is stored as the very bytes, and a delivery keeps its id however often it is tried, so a receiver
can tell a repetition. See `worker.webhooks` for the sending and docs/webhooks.md for the contract.
"""

import base64
import json
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import uuid_utils
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from store.clock import database_now
from store.reasons import REASONS, Reason
from store.tables import Job, Webhook, WebhookDelivery

SECRET_PREFIX = "whsec_"  # noqa: S105 - no secret
SECRET_BYTES = (24, 64)
PAUSES_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Between one try and the next; when all are over, after about three days, a delivery is given up."""
JITTER = 0.1
HOLD_S = 120.0
"""A try that has not told its end after so long never will: its process is gone."""
MOST_ERROR_CHARACTERS = 300


class DeliveryStatus(StrEnum):
    """Where a delivery is."""

    waiting = "waiting"
    delivered = "delivered"
    given_up = "given_up"


@dataclass(frozen=True)
class NewWebhook:
    """Where to announce what; the secret is encrypted."""

    url: str
    secret: str
    events: tuple[str, ...]

    def row(self, job_id: str) -> Webhook:
        """The row of a job that has it."""
        return Webhook(
            job_id=job_id, url=self.url, secret=self.secret, events=list(self.events), disabled_at=None
        )


@dataclass(frozen=True)
class Try:
    """A delivery that this process has taken on, and what to send. `secret` is encrypted."""

    id: str
    job_id: str
    attempt: int
    time: float
    url: str
    secret: str
    payload: str


@dataclass(frozen=True)
class Answer:
    """What came of a try: the receiver's status code, or why there was none."""

    code: int | None = None
    error: str = ""

    @property
    def delivered(self) -> bool:
        return self.code is not None and 200 <= self.code < 300

    @property
    def gone(self) -> bool:
        """The receiver wants nothing more."""
        return self.code == 410


def new_secret() -> str:
    """A random signing secret, as Standard Webhooks writes them."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def secret_key(secret: str) -> bytes | None:
    """The key that a secret spells; None when it is no secret of Standard Webhooks."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        return None
    fits = SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]
    return key if secret.startswith(SECRET_PREFIX) and fits else None


def announce(session: Session, job_id: str, event_id: int) -> None:
    """Write down that the job's present status is to be announced, where somebody wants to hear of it."""
    row = session.execute(
        select(Job, Webhook.events)
        .join(Webhook, Webhook.job_id == Job.id)
        .where(Job.id == job_id, Webhook.disabled_at.is_(None)),
        execution_options={"populate_existing": True},
    ).one_or_none()
    if row is None or (kind := event_type(row.Job.status)) not in row.events:
        return
    now = database_now(session)
    session.add(
        WebhookDelivery(
            id=str(uuid_utils.uuid7()),
            job_id=job_id,
            event_id=event_id,
            type=kind,
            payload=_payload(kind, row.Job, event_id),
            status=DeliveryStatus.waiting,
            attempts=0,
            due_at=now,
            created_at=now,
            error="",
        )
    )
    session.flush()


def event_type(status: str) -> str:
    """What the announcement of a status is called: `job.succeeded`."""
    return f"job.{status}"


def _payload(kind: str, job: Job, event_id: int) -> str:
    row = REASONS[Reason(job.reason)]
    data = {
        "id": job.id,
        "project": job.project,
        "name": job.name,
        "task": job.task,
        "status": job.status,
        "reason": job.reason,
        "message": job.message,
        "fault": row.fault,
        "retry_helps": row.retry_helps,
        "attempt": job.attempt,
        "labels": job.labels,
        "pipeline_id": job.pipeline_id,
        "sequence": event_id,
        "created_at": _rfc3339(job.created_at),
        "started_at": _rfc3339(job.started_at),
        "finished_at": _rfc3339(job.finished_at),
    }
    document = {"type": kind, "timestamp": _rfc3339(job.updated_at), "data": data}
    return json.dumps(document, separators=(",", ":"))  # ASCII: any database holds it as it is


def _rfc3339(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def due_deliveries(session: Session, limit: int) -> Sequence[tuple[str, str, str]]:
    """What is to be tried now, as (delivery, job, URL): what has waited longest first, and of one job in the
    order of its history."""
    query = (
        select(WebhookDelivery.id, WebhookDelivery.job_id, Webhook.url)
        .join(Webhook, Webhook.job_id == WebhookDelivery.job_id)
        .where(
            WebhookDelivery.status == DeliveryStatus.waiting, WebhookDelivery.due_at <= database_now(session)
        )
        .order_by(WebhookDelivery.due_at, WebhookDelivery.event_id)
        .limit(limit)
    )
    return [(row.id, row.job_id, row.url) for row in session.execute(query)]


def begin_try(session: Session, delivery_id: str) -> Try | None:
    """Take a delivery on for HOLD_S seconds; None when it is not due (any more)."""
    now = database_now(session)
    taken = session.execute(
        update(WebhookDelivery)
        .where(
            WebhookDelivery.id == delivery_id,
            WebhookDelivery.status == DeliveryStatus.waiting,
            WebhookDelivery.due_at <= now,
        )
        .values(attempts=WebhookDelivery.attempts + 1, tried_at=now, due_at=now + HOLD_S)
        .returning(WebhookDelivery.job_id, WebhookDelivery.attempts, WebhookDelivery.payload)
    ).one_or_none()
    if taken is None:
        return None
    hook = session.get_one(Webhook, taken.job_id, populate_existing=True)
    return Try(delivery_id, taken.job_id, taken.attempts, now, hook.url, hook.secret, taken.payload)


def end_try(session: Session, tried: Try, answer: Answer) -> None:
    """Write down what came of a try: it has arrived, is tried again, or is given up. Void when another
    process has taken the delivery on meanwhile, or the job is gone."""
    now = database_now(session)
    values: dict[str, Any] = {"answer_code": answer.code, "error": answer.error[:MOST_ERROR_CHARACTERS]}
    if answer.delivered:
        values |= {"status": DeliveryStatus.delivered, "delivered_at": now}
    elif answer.gone or tried.attempt > len(PAUSES_S):
        values |= {"status": DeliveryStatus.given_up}
    else:
        values |= {"due_at": now + _pause_s(tried.attempt)}
    ended = session.execute(
        update(WebhookDelivery)
        .where(
            WebhookDelivery.id == tried.id,
            WebhookDelivery.status == DeliveryStatus.waiting,
            WebhookDelivery.attempts == tried.attempt,
        )
        .values(**values)
        .returning(WebhookDelivery.id)
    ).one_or_none()
    if ended is not None and answer.gone:
        _disable(session, tried.job_id, now)


def _pause_s(attempt: int) -> float:
    return PAUSES_S[attempt - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret


def _disable(session: Session, job_id: str, now: float) -> None:
    session.execute(update(Webhook).where(Webhook.job_id == job_id).values(disabled_at=now))
    session.execute(
        update(WebhookDelivery)
        .where(WebhookDelivery.job_id == job_id, WebhookDelivery.status == DeliveryStatus.waiting)
        .values(status=DeliveryStatus.given_up, error="the receiver wants nothing more")
    )


def get_webhook(session: Session, job_id: str) -> Webhook | None:
    """The job's webhook, or None."""
    return session.get(Webhook, job_id, populate_existing=True)


def list_deliveries(session: Session, job_id: str, after: int, limit: int) -> list[WebhookDelivery]:
    """The job's announcements after an event of its history, the oldest first."""
    query = (
        select(WebhookDelivery)
        .where(WebhookDelivery.job_id == job_id, WebhookDelivery.event_id > after)
        .order_by(WebhookDelivery.event_id)
        .limit(limit)
    )
    return list(session.execute(query, execution_options={"populate_existing": True}).scalars())


def redeliver(session: Session, job_id: str, delivery_id: str | None) -> int:
    """Try now what has not arrived, or one delivery whether it has or not, under the same ids and from the
    start of the schedule. A webhook that was disabled is enabled. Returns how many deliveries that are."""
    now = database_now(session)
    query = update(WebhookDelivery).where(WebhookDelivery.job_id == job_id)
    if delivery_id is None:
        query = query.where(WebhookDelivery.status != DeliveryStatus.delivered)
    else:
        query = query.where(WebhookDelivery.id == delivery_id)
    again = query.values(status=DeliveryStatus.waiting, attempts=0, due_at=now, delivered_at=None)
    count = len(session.execute(again.returning(WebhookDelivery.id)).all())
    if count:
        session.execute(update(Webhook).where(Webhook.job_id == job_id).values(disabled_at=None))
    return count
