"""What a client may do to a job that exists: cancel, retry, delete."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from redis.exceptions import RedisError
from sqlalchemy.orm import Session

from api.access import require_job
from api.principal import Principal
from api.problems import ApiError
from api.service import Service
from store import jobs, tables, wake
from store.errors import Conflict
from store.states import Status
from store.tombstones import bury, sweep

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


def retry_job(service: Service, principal: Principal, job_id: str) -> tables.Job:
    """Queues the job again. Raises ApiError: 404, 409."""
    return _change(service, job_id, partial(jobs.retry_job, actor=principal.actor))


def delete_job(service: Service, job_id: str) -> None:
    """Forgets the job. Raises ApiError: 404, 409.

    Its artifacts go once it is forgotten; while they cannot be removed, a worker tries it again and again.
    """
    key = f"jobs/{job_id}"
    with service.database.transaction() as session, _explained_conflict(session, job_id):
        jobs.delete_job(session, job_id)
        bury(session, key)
    remove_buried(service, key)
    with suppress(RedisError):  # without a broker the stream goes by itself, after its time
        service.log_stream.delete(job_id)
    _announce(service, job_id)


def remove_buried(service: Service, key: str) -> None:
    """Remove artifacts that were buried; if that is not possible now, it is done later."""
    try:
        sweep(service.database, service.artifacts, key)
    except Exception as error:
        logger.warning("the artifacts of %s cannot be removed now: %s", key, error)


def _change(service: Service, job_id: str, change: Callable[[Session, str], tables.Job]) -> tables.Job:
    with service.database.transaction() as session, _explained_conflict(session, job_id):
        job = change(session, job_id)
    _announce(service, job_id)
    return job


@contextmanager
def _explained_conflict(session: Session, job_id: str) -> Iterator[None]:
    require_job(session, job_id)
    try:
        yield
    except Conflict as error:
        status = Status(require_job(session, job_id).status)
        allowed = ALLOWED[status]
        detail = f"{str(error).capitalize()}. Possible now: {', '.join(allowed)}."
        raise ApiError("conflict", detail, job_status=status, allowed=list(allowed)) from error


def _announce(service: Service, job_id: str) -> None:
    wake.wake(service.settings.broker_url, wake.SCHEDULER, wake.job_channel(job_id))
