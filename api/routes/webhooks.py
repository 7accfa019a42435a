"""Webhooks of jobs: what was announced, and sending it again."""

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from api.access import require_job
from api.histories import RowId
from api.pagination import HistoryLimit, one_of
from api.problems import ApiError
from api.schemas.problems import answers
from api.schemas.webhooks import Delivery, JobWebhook, Redelivery, WebhookLog
from api.service import ServiceDep
from store import tables
from store.webhooks import get_webhook, list_deliveries, redeliver

router = APIRouter(tags=["webhooks"])


@router.get("/jobs/{job_id}/webhook", responses=answers(404))
def show(
    service: ServiceDep, job_id: str, limit: HistoryLimit = 100, after: RowId = None, cursor: RowId = None
) -> WebhookLog:
    """The job's webhook and what became of each announcement."""
    position = one_of(after, cursor) or 0
    with service.database.reading() as session:
        hook = _require_webhook(session, job_id)
        rows = list_deliveries(session, job_id, position, limit + 1)
    more = len(rows) > limit
    return WebhookLog(
        webhook=JobWebhook.of(hook),
        items=[Delivery.of(row) for row in rows[:limit]],
        next_cursor=str(rows[limit - 1].event_id) if more else None,
    )


@router.post("/jobs/{job_id}/webhook/redeliver", responses=answers(404))
def send_again(
    service: ServiceDep,
    job_id: str,
    delivery: Annotated[
        str | None, Query(max_length=36, description="Only this one, even if it has arrived")
    ] = None,
) -> Redelivery:
    """Try again, now and under the same ids, what has not arrived. Enables a webhook that was disabled."""
    with service.database.transaction() as session:
        _require_webhook(session, job_id)
        count = redeliver(session, job_id, delivery)
    if delivery is not None and not count:
        detail = f"Job {job_id} has no delivery {delivery!r}. GET /jobs/{job_id}/webhook lists them."
        raise ApiError("not-found", detail)
    return Redelivery(deliveries=count)


def _require_webhook(session: Session, job_id: str) -> tables.Webhook:
    require_job(session, job_id)
    hook = get_webhook(session, job_id)
    if hook is None:
        raise ApiError("not-found", f"Job {job_id} has no webhook; one is given when a job is submitted.")
    return hook
