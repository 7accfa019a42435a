"""What a client may do to a job that exists: cancel, change, delete."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from api.access import require_job
from api.principal import Principal
from api.problems import ApiError, invalid
from api.requests import read_request
from api.schemas.jobs import MOST_LABELS
from api.schemas.reruns import ChangeRequest
from api.service import Service
from store import jobs, reruns, tables, wake
from store.errors import Conflict, RetryImpossible
from store.states import Status
from store.tombstones import bury, sweep
from trainer.config.problems import Problem

logger = logging.getLogger(__name__)

ALLOWED = {
    Status.queued: ("cancel",),
    Status.starting: ("cancel",),
    Status.running: ("cancel",),
    Status.stopping: ("cancel",),
    Status.succeeded: ("delete",),
    Status.failed: ("retry", "delete"),
    Status.cancelled: ("retry", "delete"),
}


def cancel_job(service: Service, principal: Principal, job_id: str) -> tables.Job:
    """Stops the job. Raises ApiError: 404, 409."""
    return _change(service, job_id, partial(jobs.request_cancel, actor=principal.actor))


def change_job(service: Service, principal: Principal, job_id: str, body: Mapping[str, Any]) -> tables.Job:
    """Changes priority, name and labels. Raises ApiError: 404, 409, 422."""
    request = read_request(ChangeRequest, {key: body[key] for key in body if body[key] is not None})
    name = {"name": request.name} if "name" in body else {}

    def change(session: Session, job_id: str) -> tables.Job:
        job = reruns.change_job(
            session,
            job_id,
            actor=principal.actor,
            priority=request.priority,
            labels=request.labels,
            **name,
        )
        if len(job.labels) > MOST_LABELS:
            msg = f"the job would have {len(job.labels)} labels, expected at most {MOST_LABELS}"
            raise invalid([Problem(("body", "labels"), msg, "Remove some: send them as null.")])
        return job

    return _change(service, job_id, change)


def delete_job(service: Service, principal: Principal, job_id: str) -> None:
    """Forgets the job. Raises ApiError: 404, 409.

    Its artifacts go once it is forgotten; while they cannot be removed, a worker tries it again and again.
    """
    key = f"jobs/{job_id}"
    with service.database.transaction() as session, explained_conflict(session, job_id):
        jobs.delete_job(session, job_id, principal.actor)
        bury(session, key)
    remove_buried(service, key)
    with suppress(RedisError):  # without a broker the stream goes by itself, after its time
        service.log_stream.delete(job_id)
    announce(service, job_id)


def remove_buried(service: Service, key: str) -> None:
    """Remove artifacts that were buried; if that is not possible now, it is done later."""
    try:
        sweep(service.database, service.artifacts, key)
    except Exception as error:
        logger.warning("the artifacts of %s cannot be removed now: %s", key, error)


def _change(service: Service, job_id: str, change: Callable[[Session, str], tables.Job]) -> tables.Job:
    with service.database.transaction() as session, explained_conflict(session, job_id):
        job = change(session, job_id)
    announce(service, job_id)
    return job


@contextmanager
def explained_conflict(session: Session, job_id: str) -> Iterator[None]:
    require_job(session, job_id)
    try:
        yield
    except Conflict as error:
        without = ("retry",) if isinstance(error, RetryImpossible) else ()
        raise conflict(Status(require_job(session, job_id).status), str(error), without) from error


def conflict(status: Status, why: str, without: Collection[str] = ()) -> ApiError:
    """409 for a job of this status, with what is possible: what the status allows but for `without`."""
    allowed = [each for each in ALLOWED[status] if each not in without]
    detail = f"{why[:1].upper()}{why[1:]}. Possible now: {', '.join(allowed)}."
    return ApiError("conflict", detail, job_status=status, allowed=allowed)


def announce(service: Service, job_id: str) -> None:
    """Wake whoever follows the job, and the scheduler."""
    wake.wake(service.settings.broker_url, wake.SCHEDULER, wake.job_channel(job_id))
