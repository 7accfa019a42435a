"""A server that wants keys, and clients that have some."""

from collections.abc import Iterable
from dataclasses import dataclass

import httpx
from fastapi import FastAPI

from store.database import Database
from store.keys import Scope, create_key
from store.projects import create_project

ALL = (Scope.read, Scope.write)


@dataclass(frozen=True)
class Keyed:
    """Makes clients of one server that show keys made in its database."""

    url: str
    database: Database
    app: FastAPI

    def key(
        self, project: str = "default", scopes: Iterable[Scope] = ALL, lifetime_s: float | None = None
    ) -> str:
        with self.database.transaction() as session:
            return create_key(session, project, "tests", scopes, lifetime_s=lifetime_s)[1]

    def client(self, project: str = "default", scopes: Iterable[Scope] = ALL) -> httpx.Client:
        """To be closed by the caller."""
        return self.with_key(self.key(project, scopes))

    def with_key(self, key: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=20, headers={"authorization": f"Bearer {key}"})

    def without(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=20)

    def project(self, name: str, **limits: int | None) -> str:
        with self.database.transaction() as session:
            create_project(session, name, limits)
        return name
