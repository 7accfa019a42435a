"""Who sends a request, and what that client may do.

`api.authentication` finds out who it is before anything else is looked at; `admit` then runs before every
endpoint and refuses what the client may not do. Both hold for all routes, so that none can forget them.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from api.access import names_owned, require_visible
from api.problems import ApiError
from api.service import ServiceDep
from store.jobs import DEFAULT_PROJECT
from store.keys import Scope

SCOPE_MARK = "x-regatta-scope"
ADMIN_ONLY: dict[str, Any] = {SCOPE_MARK: Scope.admin.value}
"""A route's `openapi_extra` (or a part of it) when only administrators may call it."""
REALM = 'Bearer realm="regatta"'
READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True)
class Principal:
    """A client: its project, what it may do there, and the name that the history knows it by.

    Who has the scope `admin` may do everything and sees all projects; what it creates belongs to its own.
    """

    project: str
    scopes: frozenset[Scope]
    actor: str

    @property
    def is_admin(self) -> bool:
        return Scope.admin in self.scopes

    @property
    def visible_project(self) -> str | None:
        """The only project whose things the client may see; None: those of all."""
        return None if self.is_admin else self.project

    def sees(self, project: str) -> bool:
        """Whether the client may know of what belongs to the project."""
        return self.is_admin or self.project == project

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or self.is_admin


LOCAL = Principal(DEFAULT_PROJECT, frozenset(Scope), "local")
"""Everybody, on a server that wants no keys: it listens on loopback only."""


async def _principal(request: Request) -> Principal:
    return request.state.principal


PrincipalDep = Annotated[Principal, Depends(_principal)]


async def admit(request: Request, service: ServiceDep, principal: PrincipalDep) -> None:
    """Runs before every endpoint: whether the client may call it, and may know of what the path names.

    Raises: ApiError: 403 without the scope; 404 for what belongs to another project, as for what is unknown.
    """
    needed = scope_of(request.scope["route"], request.method)
    if not principal.may(needed):
        raise _missing_scope(request, principal, needed)
    if principal.visible_project is not None and names_owned(request.path_params):
        await run_in_threadpool(require_visible, service, principal.visible_project, request.path_params)


def scope_of(route: Any, method: str) -> Scope:
    """What a key needs to call a route: reading and changing are told apart by the method."""
    marked = (route.openapi_extra or {}).get(SCOPE_MARK)
    if marked is not None:
        return Scope(marked)
    return Scope.read if method in READING else Scope.write


def _missing_scope(request: Request, principal: Principal, needed: Scope) -> ApiError:
    has = ", ".join(sorted(principal.scopes)) or "none"
    detail = (
        f"{request.method} {request.url.path} needs a key with the scope {needed.value}; this one has {has}."
    )
    challenge = f'{REALM}, error="insufficient_scope", scope="{needed.value}"'
    return ApiError(
        "insufficient-scope", detail, headers={"WWW-Authenticate": challenge}, missing_scope=needed.value
    )
