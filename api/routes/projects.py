"""Projects: create, list, limit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from api.forms import json_object, read_form
from api.openapi import json_body
from api.pagination import Cursor, PageLimit, part_of
from api.principal import ADMIN_ONLY, PrincipalDep
from api.problems import ApiError, not_found, sentence
from api.schemas.problems import answers
from api.schemas.projects import LimitsRequest, Project, ProjectPage, ProjectRequest
from api.service import ServiceDep
from store.errors import Conflict, NotFound
from store.projects import create_project, get_project, list_projects, set_limits

router = APIRouter(tags=["projects"])

Body = Annotated[dict[str, Any], Depends(json_object)]


@router.post(
    "/projects",
    status_code=201,
    responses=answers(409),
    openapi_extra=json_body(ProjectRequest) | ADMIN_ONLY,
)
def create(service: ServiceDep, principal: PrincipalDep, body: Body) -> Project:
    """Create a project."""
    request = read_form(ProjectRequest, body)
    with service.database.transaction() as session:
        try:
            return Project.of(create_project(session, request.name, request.given(), actor=principal.actor))
        except Conflict as error:
            raise ApiError("exists", sentence(error)) from error


@router.get("/projects")
def list_all(
    service: ServiceDep, principal: PrincipalDep, limit: PageLimit = 50, cursor: Cursor = None
) -> ProjectPage:
    """Projects by name; without the scope admin the caller's own alone."""
    with service.database.reading() as session:
        visible = [project for project in list_projects(session) if principal.sees(project.name)]
    rows, next_cursor = part_of(visible, lambda row: row.name, limit, cursor)
    return ProjectPage(items=[Project.of(row) for row in rows], next_cursor=next_cursor)


@router.get("/projects/{project}", responses=answers(404))
def show(service: ServiceDep, principal: PrincipalDep, project: str) -> Project:
    """One project and its limits."""
    with known_project(project), service.database.reading() as session:
        if not principal.sees(project):
            raise NotFound(project)
        return Project.of(get_project(session, project))


@router.patch(
    "/projects/{project}",
    responses=answers(404),
    openapi_extra=json_body(LimitsRequest) | ADMIN_ONLY,
)
def limits(service: ServiceDep, principal: PrincipalDep, project: str, body: Body) -> Project:
    """Change the limits of a project."""
    request = read_form(LimitsRequest, body)
    with known_project(project), service.database.transaction() as session:
        return Project.of(set_limits(session, project, request.given(), actor=principal.actor))


@contextmanager
def known_project(name: str) -> Iterator[None]:
    """Answers 404 when the store does not know the project."""
    try:
        yield
    except NotFound as error:
        raise not_found("project", name, "/projects") from error
