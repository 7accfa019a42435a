"""Secrets of projects: set, list, delete. Values go in and never come out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from api.confidential import box_of
from api.forms import json_object
from api.openapi import json_body
from api.pagination import Cursor, PageLimit, part_of
from api.principal import ADMIN_ONLY, Principal, PrincipalDep
from api.problems import invalid, not_found
from api.schemas.problems import answers
from api.schemas.secrets import Secret, SecretPage, SecretRequest
from api.service import ServiceDep
from store.errors import NotFound
from store.secrets import delete_secret, get_secret, list_secrets, name_problem, put_secret, value_problem
from trainer.config.problems import Problem
from trainer.config.values import show

router = APIRouter(tags=["secrets"])

OfProject = Annotated[
    str | None, Query(max_length=63, description="Whose; default: your own project. Others: `admin` only")
]


@router.put(
    "/secrets/{name}",
    responses=answers(404, 409),
    openapi_extra=json_body(SecretRequest) | ADMIN_ONLY,
)
def put(
    service: ServiceDep,
    principal: PrincipalDep,
    name: str,
    body: Annotated[dict[str, Any], Depends(json_object)],
    project: OfProject = None,
) -> Secret:
    """Set a secret: every job of the project that starts from now on gets it in its trainer's environment."""
    value = _value(name, body)
    ciphertext = box_of(service).encrypt(value)
    with _known(name), service.database.transaction() as session:
        return Secret.of(
            put_secret(session, project or principal.project, name, ciphertext, actor=principal.actor)
        )


@router.get("/secrets", responses=answers(404))
def list_all(
    service: ServiceDep,
    principal: PrincipalDep,
    project: OfProject = None,
    limit: PageLimit = 50,
    cursor: Cursor = None,
) -> SecretPage:
    """The names of a project's secrets."""
    with service.database.reading() as session:
        found = list_secrets(session, _visible(principal, project))
    rows, next_cursor = part_of(found, lambda row: row.name, limit, cursor)
    return SecretPage(items=[Secret.of(row) for row in rows], next_cursor=next_cursor)


@router.get("/secrets/{name}", responses=answers(404))
def show_one(service: ServiceDep, principal: PrincipalDep, name: str, project: OfProject = None) -> Secret:
    """When a secret was set."""
    with _known(name), service.database.reading() as session:
        return Secret.of(get_secret(session, _visible(principal, project), name))


@router.delete("/secrets/{name}", status_code=204, responses=answers(404), openapi_extra=ADMIN_ONLY)
def delete(service: ServiceDep, principal: PrincipalDep, name: str, project: OfProject = None) -> None:
    """Forget a secret. Jobs that run keep it."""
    with _known(name), service.database.transaction() as session:
        delete_secret(session, project or principal.project, name, actor=principal.actor)


def _value(name: str, body: dict[str, Any]) -> str:
    """The value of the body. Raises ApiError (422); no message repeats it."""
    problems = []
    if problem := name_problem(name):
        problems.append(Problem(("path", "name"), f"got {show(name)}, {problem}", "Rename it."))
    problems += [
        Problem(("body", key), "unknown field", "Send value alone.") for key in body if key != "value"
    ]
    if problem := value_problem(body.get("value")):
        hint = "A value is one line of plain text of at least 8 characters."
        problems.append(Problem(("body", "value"), problem, hint))
    if problems:
        raise invalid(problems)
    return body["value"]


def _visible(principal: Principal, project: str | None) -> str:
    """The project asked for. Raises ApiError (404) for another than the client may see."""
    wanted = project or principal.project
    if not principal.sees(wanted):
        raise not_found("project", wanted, "/projects")
    return wanted


@contextmanager
def _known(name: str) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        if "no project" in str(error):
            raise not_found("project", str(error).split("'")[1], "/projects") from error
        raise not_found("secret", name, "/secrets") from error
