"""Webhooks: what a request says of one, and how they and their deliveries are shown."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from api.pagination import Page
from api.schemas.common import Time, rfc3339, rfc3339_or_none
from store import tables
from store.targets import MOST_CHARACTERS, masked
from store.webhooks import DeliveryStatus

EventType = Literal[
    "job.queued",
    "job.starting",
    "job.running",
    "job.stopping",
    "job.succeeded",
    "job.failed",
    "job.cancelled",
]


class WebhookRequest(BaseModel):
    """Where to announce the job's changes of status, signed by Standard Webhooks."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: str = Field(max_length=MOST_CHARACTERS, description="https, without user name and password")
    secret: str | None = Field(
        None,
        max_length=200,
        description="Signs what is sent: `whsec_` and 24 to 64 bytes in base64; default: random, shown once",
    )
    events: list[EventType] | None = Field(
        None, min_length=1, max_length=7, description="What to announce; default: every change of status"
    )


class JobWebhook(BaseModel):
    """A job's webhook."""

    url: str = Field(description="Without the values of its query")
    events: list[EventType]
    disabled_at: Time | None = Field(
        description="Since then the receiver wants nothing more (it answered 410)"
    )
    secret: str | None = Field(
        None, description="Only in the answer that has created the job, when the server has made it"
    )

    @classmethod
    def of(cls, row: tables.Webhook) -> "JobWebhook":
        return cls.shown(row.url, row.events, row.disabled_at)

    @classmethod
    def shown(
        cls, url: str, events: list[str], disabled_at: float | None, secret: str | None = None
    ) -> "JobWebhook":
        """Args: `secret`: what was made for it just now."""
        return cls.model_validate(
            {
                "url": masked(url),
                "events": events,
                "disabled_at": rfc3339_or_none(disabled_at),
                "secret": secret,
            }
        )


class Delivery(BaseModel):
    """One announcement and how far it has come."""

    id: str = Field(description="The webhook-id of every try")
    event_id: int = Field(description="Of the job's history; the payload's `sequence`")
    type: EventType
    status: DeliveryStatus
    attempts: int = Field(description="Tries so far")
    created_at: Time
    tried_at: Time | None = Field(description="When it was last tried")
    delivered_at: Time | None
    next_try_at: Time | None
    answer_code: int | None = Field(description="What the receiver answered to the last try")
    error: str = Field(description="Why the last try has failed")

    @classmethod
    def of(cls, row: tables.WebhookDelivery) -> "Delivery":
        waiting = row.status == DeliveryStatus.waiting
        return cls.model_validate(
            {
                "id": row.id,
                "event_id": row.event_id,
                "type": row.type,
                "status": DeliveryStatus(row.status),
                "attempts": row.attempts,
                "created_at": rfc3339(row.created_at),
                "tried_at": rfc3339_or_none(row.tried_at),
                "delivered_at": rfc3339_or_none(row.delivered_at),
                "next_try_at": rfc3339(row.due_at) if waiting else None,
                "answer_code": row.answer_code,
                "error": row.error,
            }
        )


class WebhookLog(Page[Delivery]):
    """A job's webhook and its deliveries, the oldest first."""

    webhook: JobWebhook


class Redelivery(BaseModel):
    """How many deliveries are tried again."""

    deliveries: int
