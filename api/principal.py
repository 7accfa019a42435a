"""Who sends a request, and what that client may do."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import Depends, Request

from store.jobs import DEFAULT_PROJECT


class Scope(StrEnum):
    """What a key allows."""

    read = "read"
    write = "write"
    admin = "admin"


@dataclass(frozen=True)
class Principal:
    """A client: its project, what it may do there, and the name that the history knows it by.

    Who has the scope `admin` sees all projects; what it creates belongs to its own.
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


LOCAL = Principal(DEFAULT_PROJECT, frozenset(Scope), "local")
"""Everybody, on a server that wants no keys: it listens on loopback only."""


def admit(request: Request) -> None:
    """Runs before every endpoint: finds out who asks."""
    request.state.principal = LOCAL


def _principal(request: Request) -> Principal:
    return request.state.principal


PrincipalDep = Annotated[Principal, Depends(_principal)]
