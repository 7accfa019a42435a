"""Keys and projects: made and changed through a server or, without a key yet, in the database itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from api.forms import read_form
from api.problems import ApiError as Refusal
from api.problems import sentence
from api.schemas.keys import Key, KeyRequest, NewKey
from api.schemas.projects import LimitsRequest, Project, ProjectRequest
from cli.client import Client
from cli.database import check_database
from cli.errors import ApiError, CliError
from store import keys, projects, secrets
from store.database import Database
from store.errors import StoreError
from store.jobs import DEFAULT_PROJECT
from store.secretbox import open_box
from store.settings import Settings

ACTOR = "local"
MOST_LISTED = 1000

T = TypeVar("T")
Document = dict[str, Any]


class Administration(Protocol):
    """What an administrator does; documents are those of the HTTP API. All methods raise CliError."""

    def create_key(self, body: Document) -> Document: ...
    def list_keys(self, project: str | None) -> list[Document]: ...
    def revoke_key(self, key_id: str) -> None: ...
    def create_project(self, body: Document) -> Document: ...
    def list_projects(self) -> list[Document]: ...
    def limit_project(self, name: str, limits: Document) -> Document: ...


@contextmanager
def administration(settings: Settings | None) -> Iterator[Administration]:
    """Through the server of the environment or, with settings, in the database that they name."""
    if settings is None:
        with Client() as client:
            yield OverHttp(client)
        return
    check_database(settings.database_url)
    database = Database(settings.database_url)
    try:
        yield InDatabase(database)
    finally:
        database.dispose()


def rotate_secrets(settings: Settings) -> int:
    """Encrypt secrets, those of webhooks too, with the first key of the settings; how many there are.

    Raises: CliError.
    """
    check_database(settings.database_url)
    database = Database(settings.database_url)
    try:
        box = open_box(settings)
        with database.transaction() as session:
            return secrets.rotate_secrets(session, box)
    except StoreError as error:
        raise CliError(sentence(error)) from error
    finally:
        database.dispose()


class OverHttp:
    """Asks a server, with the key of the environment."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create_key(self, body: Document) -> Document:
        return self._client.post("/keys", body)

    def list_keys(self, project: str | None) -> list[Document]:
        return list(islice(self._client.items("/keys", {"project": project}), MOST_LISTED))

    def revoke_key(self, key_id: str) -> None:
        self._client.delete(f"/keys/{quote(key_id, safe='')}")

    def create_project(self, body: Document) -> Document:
        return self._client.post("/projects", body)

    def list_projects(self) -> list[Document]:
        return list(self._client.items("/projects"))

    def limit_project(self, name: str, limits: Document) -> Document:
        return self._client.patch(f"/projects/{quote(name, safe='')}", limits)


class InDatabase:
    """Works on the database, as whoever may read its settings can."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_key(self, body: Document) -> Document:
        def create(session: Session) -> NewKey:
            request = read_form(KeyRequest, body)
            project, scopes = request.project or DEFAULT_PROJECT, map(keys.Scope, request.scopes)
            row, text = keys.create_key(
                session, project, request.name, scopes, lifetime_s=request.expires_in_s, actor=ACTOR
            )
            return NewKey.made(row, text)

        return self._do(create).model_dump()

    def list_keys(self, project: str | None) -> list[Document]:
        page = self._do(lambda session: keys.list_keys(session, limit=MOST_LISTED, project=project))
        return [Key.of(row).model_dump() for row in page.items]

    def revoke_key(self, key_id: str) -> None:
        self._do(lambda session: keys.revoke_key(session, key_id, actor=ACTOR))

    def create_project(self, body: Document) -> Document:
        def create(session: Session) -> Project:
            request = read_form(ProjectRequest, body)
            return Project.of(projects.create_project(session, request.name, request.given(), actor=ACTOR))

        return self._do(create).model_dump()

    def list_projects(self) -> list[Document]:
        return self._do(
            lambda session: [Project.of(row).model_dump() for row in projects.list_projects(session)]
        )

    def limit_project(self, name: str, limits: Document) -> Document:
        def change(session: Session) -> Project:
            request = read_form(LimitsRequest, limits)
            return Project.of(projects.set_limits(session, name, request.given(), actor=ACTOR))

        return self._do(change).model_dump()

    def _do(self, work: Callable[[Session], T]) -> T:
        try:
            with self._database.transaction() as session:
                return work(session)
        except Refusal as refusal:
            raise ApiError(refusal.status, refusal.document()) from refusal
        except StoreError as error:
            raise CliError(sentence(error)) from error
        except SQLAlchemyError as error:
            reason = getattr(error, "orig", None) or error
            raise CliError(f"The database does not do this: {reason}") from error
