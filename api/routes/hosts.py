"""Hosts: their devices and what runs where."""

from fastapi import APIRouter

from api.pagination import Cursor, PageLimit, part_of
from api.principal import PrincipalDep
from api.schemas.hosts import Host, HostPage
from api.service import ServiceDep
from store.database import database_now
from store.hosts import allocations, list_hosts
from store.projects import jobs_of

router = APIRouter(tags=["hosts"])


@router.get("/hosts")
def list_all(
    service: ServiceDep, principal: PrincipalDep, limit: PageLimit = 200, cursor: Cursor = None
) -> HostPage:
    """All hosts that have ever registered, by name."""
    with service.database.reading() as session:
        now = database_now(session)
        rows, next_cursor = part_of(list_hosts(session), lambda row: row.name, limit, cursor)
        parts = allocations(session)
        visible = jobs_of(session, {part.job_id for part in parts}, principal.visible_project)
    oldest = now - service.settings.host_silence_s
    items = [
        Host.of(row, row.heartbeat_at >= oldest, [part for part in parts if part.host == row.name], visible)
        for row in rows
    ]
    return HostPage(items=items, next_cursor=next_cursor)
