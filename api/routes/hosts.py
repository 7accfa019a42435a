"""Hosts: their devices, what runs where, and keeping jobs away from them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from api.pagination import Cursor, PageLimit, part_of
from api.principal import ADMIN_ONLY, Principal, PrincipalDep
from api.problems import not_found
from api.schemas.hosts import Host, HostPage
from api.schemas.problems import answers
from api.service import Service, ServiceDep
from store import tables
from store.database import database_now
from store.errors import NotFound
from store.exclusion import is_excluded
from store.hosts import allocations, cordon_host, drain_host, list_hosts, uncordon_host
from store.projects import jobs_of
from store.wake import SCHEDULER, job_channel, wake

router = APIRouter(tags=["hosts"])

CordonReason = Annotated[
    str,
    Query(alias="reason", max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$", description="Why, for who asks"),
]


@router.get("/hosts")
def list_all(
    service: ServiceDep, principal: PrincipalDep, limit: PageLimit = 200, cursor: Cursor = None
) -> HostPage:
    """All hosts that have ever registered, by name."""
    with service.database.reading() as session:
        rows, next_cursor = part_of(list_hosts(session), lambda row: row.name, limit, cursor)
        return HostPage(items=_shown(session, service, principal, rows), next_cursor=next_cursor)


@router.post("/hosts/{name}/cordon", responses=answers(404), openapi_extra=ADMIN_ONLY)
def cordon(service: ServiceDep, principal: PrincipalDep, name: str, reason: CordonReason = "") -> Host:
    """Give the host no new jobs until it is uncordoned; those that run there go on."""
    with _known(name), service.database.transaction() as session:
        row = cordon_host(session, name, reason, actor=principal.actor)
        return _shown(session, service, principal, [row])[0]


@router.post("/hosts/{name}/drain", responses=answers(404), openapi_extra=ADMIN_ONLY)
def drain(service: ServiceDep, principal: PrincipalDep, name: str, reason: CordonReason = "") -> Host:
    """Cordon the host, and let the jobs that run there stop with a checkpoint and go on elsewhere."""
    with _known(name), service.database.transaction() as session:
        row, job_ids = drain_host(session, name, reason, actor=principal.actor)
        shown = _shown(session, service, principal, [row])[0]
    if job_ids:
        wake(service.settings.broker_url, *(job_channel(job_id) for job_id in job_ids))
    return shown


@router.post("/hosts/{name}/uncordon", responses=answers(404), openapi_extra=ADMIN_ONLY)
def uncordon(service: ServiceDep, principal: PrincipalDep, name: str) -> Host:
    """Give the host jobs again."""
    with _known(name), service.database.transaction() as session:
        row = uncordon_host(session, name, actor=principal.actor)
        shown = _shown(session, service, principal, [row])[0]
    wake(service.settings.broker_url, SCHEDULER)
    return shown


def _shown(
    session: Session, service: Service, principal: Principal, rows: Sequence[tables.Host]
) -> list[Host]:
    """The hosts with what runs there, as far as the client may know it."""
    now = database_now(session)
    oldest = now - service.settings.host_silence_s
    parts = allocations(session)
    visible = jobs_of(session, {part.job_id for part in parts}, principal.visible_project)
    return [
        Host.of(
            row,
            [part for part in parts if part.host == row.name],
            visible,
            alive=row.heartbeat_at >= oldest,
            excluded=is_excluded(row, now),
        )
        for row in rows
    ]


@contextmanager
def _known(name: str) -> Iterator[None]:
    """Answers 404 when the store does not know the host."""
    if "\0" in name:  # PostgreSQL takes no such text
        raise not_found("host", name, "/hosts")
    try:
        yield
    except NotFound as error:
        raise not_found("host", name, "/hosts") from error
