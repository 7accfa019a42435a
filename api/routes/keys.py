"""API keys: create, list, revoke."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from api.forms import json_object, read_form
from api.openapi import json_body
from api.pagination import Cursor, PageLimit, valid_cursor
from api.principal import ADMIN_ONLY, PrincipalDep
from api.problems import invalid, not_found
from api.schemas.keys import Key, KeyPage, KeyRequest, NewKey
from api.schemas.problems import answers
from api.service import ServiceDep
from store.errors import NotFound
from store.keys import Scope, create_key, list_keys, revoke_key
from trainer.config.problems import Problem

router = APIRouter(tags=["keys"])


@router.post(
    "/keys",
    status_code=201,
    openapi_extra=json_body(KeyRequest) | ADMIN_ONLY,
)
def create(
    service: ServiceDep,
    principal: PrincipalDep,
    body: Annotated[dict[str, Any], Depends(json_object)],
) -> NewKey:
    """Create a key. Its text is in this answer and nowhere else."""
    request = read_form(KeyRequest, body)
    project = request.project or principal.project
    with service.database.transaction() as session:
        try:
            row, text = create_key(
                session,
                project,
                request.name,
                map(Scope, request.scopes),
                lifetime_s=request.expires_in_s,
                actor=principal.actor,
            )
        except NotFound as error:
            hint = "GET /projects lists them, POST /projects makes one."
            raise invalid([Problem(("body", "project"), f"{error}", hint)]) from error
        return NewKey.made(row, text)


@router.get("/keys", openapi_extra=ADMIN_ONLY)
def list_all(
    service: ServiceDep,
    project: Annotated[str | None, Query(max_length=63, description="Only its keys")] = None,
    limit: PageLimit = 50,
    cursor: Cursor = None,
) -> KeyPage:
    """Keys, newest first, the revoked ones too."""
    with service.database.reading() as session, valid_cursor():
        page = list_keys(session, limit=limit, project=project, cursor=cursor)
        return KeyPage(items=[Key.of(row) for row in page.items], next_cursor=page.next_cursor)


@router.delete("/keys/{key_id}", status_code=204, responses=answers(404), openapi_extra=ADMIN_ONLY)
def revoke(request: Request, service: ServiceDep, principal: PrincipalDep, key_id: str) -> None:
    """Revoke a key: it is refused from now on, by other servers within five seconds. Safe to repeat."""
    try:
        with service.database.transaction() as session:
            revoke_key(session, key_id, actor=principal.actor)
    except NotFound as error:
        raise not_found("key", key_id, "/keys") from error
    request.app.state.keyring.forget()
