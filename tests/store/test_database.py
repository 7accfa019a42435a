"""The engine's settings, the two kinds of sessions and the database's clock."""

import socket
import threading
import time
from contextlib import suppress

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from store.database import SAFE_SQLITE, Database, database_now, normalised_url
from store.jobs import create_job, list_jobs
from tests.store.given import new_job


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("sqlite+aiosqlite:////x/a.db", "sqlite:////x/a.db"),
        ("postgresql://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgres://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql+asyncpg://u:p@h:5/d", "postgresql+psycopg://u:p@h:5/d"),
        ("postgresql+psycopg://u@h/d?host=/s", "postgresql+psycopg://u@h/d?host=%2Fs"),
    ],
)
def test_asynchronous_drivers_are_replaced(given: str, used: str) -> None:
    assert normalised_url(given).render_as_string(hide_password=False) == used


def test_other_databases_are_refused_with_what_is_expected() -> None:
    with pytest.raises(ValueError, match=r"database_url: got a URL of 'mysql', expected sqlite:///<file>"):
        normalised_url("mysql://h/d")
    with pytest.raises(ValueError, match="name a file"):
        Database("sqlite://")


def test_sqlite_is_set_up_for_several_processes(tmp_path) -> None:
    database = Database(f"sqlite:///{tmp_path}/new folder/a.db")
    with database.reading() as session:
        pragmas = ("journal_mode", "foreign_keys", "synchronous")
        assert [session.execute(text(f"PRAGMA {name}")).scalar_one() for name in pragmas] == ["wal", 1, 1]
        version = session.execute(text("SELECT sqlite_version()")).scalar_one()
        assert tuple(map(int, version.split("."))) >= SAFE_SQLITE
    database.dispose()


def test_a_reader_sees_committed_data_only_and_does_not_wait_for_a_writer(database: Database) -> None:
    with database.transaction() as writing:
        create_job(writing, new_job())
        with database.reading() as session:
            assert list_jobs(session, limit=10).items == []
    with database.reading() as session:
        assert len(list_jobs(session, limit=10).items) == 1


def test_a_reading_session_cannot_commit_anything(database: Database) -> None:
    def write_in_a_reading_session() -> None:
        with database.reading() as session:
            create_job(session, new_job())

    with suppress(DBAPIError):  # PostgreSQL refuses at once, SQLite forgets it at the end
        write_in_a_reading_session()
    with database.reading() as session:
        assert list_jobs(session, limit=10).items == []


def test_writers_of_other_processes_take_turns(database: Database, database_url: str) -> None:
    """Each engine stands for a process: nothing but the database orders them."""
    with database.transaction() as session:
        session.execute(text("CREATE TABLE counter (n INTEGER)"))
        session.execute(text("INSERT INTO counter VALUES (0)"))
    lock = "" if database.engine.dialect.name == "sqlite" else " FOR UPDATE"

    def count() -> None:
        own = Database(database_url)
        for _ in range(20):
            with own.transaction() as session:
                seen = session.execute(text(f"SELECT n FROM counter{lock}")).scalar_one()  # noqa: S608
                session.execute(text("UPDATE counter SET n = :n"), {"n": seen + 1})
        own.dispose()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with database.reading() as session:
        assert session.execute(text("SELECT n FROM counter")).scalar_one() == 80


def test_the_databases_clock_moves_within_a_transaction(database: Database) -> None:
    with database.transaction() as session:
        first = database_now(session)
        assert abs(first - time.time()) < 60
        while (now := database_now(session)) == first:
            pass
        assert now > first


def test_a_server_of_postgresql_that_says_nothing_is_not_waited_for_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for query in ("", "?connect_timeout=2"):
            database = Database(f"postgresql://someone@127.0.0.1:{port}/regatta{query}")
            with pytest.raises(OperationalError, match="timeout"), database.reading() as session:
                session.execute(text("SELECT 1"))


def test_a_connection_that_broke_while_it_rested_is_replaced(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not database_url.startswith("postgresql"):
        pytest.skip("SQLite has no server that could go")
    with database.reading() as session:
        backend = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [backend])
    monkeypatch.setattr("store.database.RESTED_S", 0.0)
    with database.reading() as session:
        assert session.execute(text("SELECT pg_backend_pid()")).scalar_one() != backend
