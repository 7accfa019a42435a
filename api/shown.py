"""Jobs as the API shows them, in the members of `api.schemas.jobs.Job` and `JobSummary`.

They are written straight from the rows. What the database holds as JSON goes out as it is: this service has
checked and written it, and to take it apart would cost more than all the rest of the call.
"""

from typing import Any

import orjson
from fastapi import Response
from sqlalchemy.orm import Session

from api.access import require_job_row
from api.creation import Creation
from api.schemas.common import rfc3339, rfc3339_or_none
from api.schemas.estimates import Estimate
from api.schemas.jobs import NOT_SEEN, Evidence, Placement, Progress
from api.schemas.webhooks import JobWebhook
from api.service import Service
from store.job_rows import JobRow
from store.pages import Page
from store.queue import Place, places
from store.reasons import REASONS, Reason
from store.states import Status

_BELOW = ("events", "logs", "metrics", "checkpoints", "result", "webhook", "cancel", "retry", "clone")


def show_job(service: Service, job_id: str) -> Response:
    """The answer that shows a job as it is now. Raises ApiError (404)."""
    with service.database.reading() as session:
        row = require_job_row(session, job_id)
        place = places(session, [row.columns]).get(job_id)
    return _json(job_document(row, place))


def show_created(service: Service, made: Creation) -> Response:
    """The answer to a request for a new job."""
    if made.row is None:
        answer = show_job(service, made.job_id)
    else:
        document = job_document(made.row, made.place, made.webhook_secret)
        answer = _json(document, 201)
    answer.headers["Location"] = f"/jobs/{made.job_id}"
    return answer


def show_page(session: Session, page: Page[JobRow], *, summary: bool) -> Response:
    """The answer that shows a page of jobs, each with its place in the queue."""
    place = places(session, [row.columns for row in page.items])
    document = summary_document if summary else job_document
    items = [document(row, place.get(row.columns.id)) for row in page.items]
    return _json({"items": items, "next_cursor": page.next_cursor})


def job_document(row: JobRow, place: Place | None, webhook_secret: str | None = None) -> dict[str, Any]:
    """A job with its configs, for orjson."""
    columns = row.columns
    return summary_document(row, place) | {
        "evidence": _completed(Evidence, columns.evidence),
        "config": _as_it_is(columns.config_given),
        "resolved_config": _as_it_is(columns.config_resolved),
        "estimate": _completed(Estimate, columns.estimate),
        "warnings": _as_it_is(columns.warnings),
        "webhook": _webhook(columns, webhook_secret),
    }


def summary_document(row: JobRow, place: Place | None) -> dict[str, Any]:
    """A job without its configs; `place`: where it stands in the queue."""
    columns = row.columns
    reason = REASONS[Reason(columns.reason)]
    own = f"/jobs/{columns.id}"
    return {
        "id": columns.id,
        "project": columns.project,
        "submitted_by": columns.submitted_by,
        "name": columns.name,
        "task": columns.task,
        "status": columns.status,
        "reason": columns.reason,
        "message": (place.waits_for if place else "") or columns.message,
        "fault": reason.fault,
        "retry_helps": reason.retry_helps,
        "queue": None if place is None else _queue_place(columns, place),
        "not_before": rfc3339_or_none(columns.not_before if columns.status == Status.queued else None),
        "pipeline_id": columns.pipeline_id,
        "pipeline_step": columns.pipeline_step,
        "attempt": columns.attempt,
        "priority": columns.priority,
        "max_retries": columns.max_retries,
        "timeout_s": columns.timeout_s,
        "labels": row.labels,
        "resources": {
            "nodes": columns.nodes,
            "devices_per_node": columns.devices_per_node,
            "device": columns.device,
        },
        "placement": _placement(columns.placement),
        "progress": Progress.members_of(columns),
        "created_at": rfc3339(columns.created_at),
        "updated_at": rfc3339(columns.updated_at),
        "queued_at": rfc3339(columns.queued_at),
        "started_at": rfc3339_or_none(columns.started_at),
        "finished_at": rfc3339_or_none(columns.finished_at),
        "links": {"self": own} | {name: f"{own}/{name}" for name in _BELOW},
    }


def _queue_place(columns: Any, place: Place) -> dict[str, Any]:
    why = place.waits_for or columns.message or NOT_SEEN
    return {"position": place.position, "ahead": place.ahead, "why": why}


def _placement(placement: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    if placement is None:
        return None
    return [Placement.model_validate(node).model_dump() for node in placement]


def _as_it_is(value: Any) -> Any:
    """A member that the database holds as JSON, or that was not stored yet."""
    return orjson.Fragment(value) if isinstance(value, str) else value


def _completed(model: type[Evidence | Estimate], value: Any) -> Any:
    """The stored document with all members that the model has today."""
    if not isinstance(value, str):
        return value
    return orjson.Fragment(model.model_validate_json(value).model_dump_json())


def _webhook(columns: Any, secret: str | None) -> orjson.Fragment | None:
    if columns.webhook_url is None:
        return None
    shown = JobWebhook.shown(columns.webhook_url, columns.webhook_events, columns.webhook_disabled_at, secret)
    return orjson.Fragment(shown.model_dump_json())


def _json(document: Any, status_code: int = 200) -> Response:
    return Response(orjson.dumps(document), status_code, media_type="application/json")
