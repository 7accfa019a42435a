"""One engine per process; `transaction()` writes and commits, `reading()` only reads."""

import json
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from store.clock import database_now

__all__ = ["Database", "create_database_engine", "database_now", "normalised_url"]

SAFE_SQLITE = (3, 51, 3)
"""Since this version two connections that write and checkpoint at once cannot damage a WAL file."""

RESTED_S = 1.0
"""A connection to PostgreSQL that was not used for so long is tested before it is used again."""

_PATIENCE = {
    "connect_timeout": 5,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How long a server of PostgreSQL that vanished is waited for (libpq; seconds, the last: milliseconds),
unless its URL says otherwise."""

_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


class Database:
    """The service's database, SQLite or PostgreSQL."""

    def __init__(self, url: str) -> None:
        self.url = normalised_url(url)
        self.engine = create_database_engine(self.url)
        # SQLite's own lock is polled for and unfair: writers of one process take turns before they ask for it
        self._turn = threading.RLock() if self.url.get_backend_name() == "sqlite" else nullcontext()
        # the driver forgets its prepared statements when a transaction is rolled back
        self._commits_reads = self.url.get_backend_name() == "postgresql"
        # rows are read again where it matters: an UPDATE need not look for loaded objects that it concerns
        options: dict[str, Any] = {
            "expire_on_commit": False,
            "execution_options": {"synchronize_session": False},
        }
        self._write = sessionmaker(self.engine, **options)
        self._read = sessionmaker(
            self.engine.execution_options(read_only=True, postgresql_readonly=True), **options
        )

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A session that may write: commits at the end, rolls back on an exception."""
        with self._turn, self._write.begin() as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that only reads; on SQLite it never waits for a writer."""
        with self._read() as session:
            yield session
            if self._commits_reads:
                session.commit()

    def dispose(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def normalised_url(url: str) -> URL:
    """The URL with the synchronous driver that the service uses, whatever driver was named.

    Raises: ValueError for anything but SQLite and PostgreSQL.
    """
    parsed = make_url(url)
    backend = parsed.drivername.partition("+")[0]
    if backend not in _DRIVERS:
        raise ValueError(
            f"database_url: got a URL of {parsed.drivername!r}, expected sqlite:///<file> "
            "or postgresql+psycopg://<user>@<host>/<database>"
        )
    return parsed.set(drivername=_DRIVERS[backend])


def create_database_engine(url: URL, *, foreign_keys: bool = True, pooled: bool = True) -> Engine:
    """An engine for one of the two databases, with the settings that the service relies on."""
    options: dict[str, Any] = {"json_serializer": partial(json.dumps, allow_nan=False)}
    options |= {"max_overflow": 35, "pool_use_lifo": True} if pooled else {"poolclass": NullPool}
    if url.get_backend_name() != "sqlite":
        patience = {name: value for name, value in _PATIENCE.items() if name not in url.query}
        engine = create_engine(url, connect_args=patience, **options)
        _test_rested_connections(engine)
        return engine
    if url.database in (None, "", ":memory:"):
        raise ValueError("database_url: an in-memory SQLite database cannot be shared; name a file")
    Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, module=_sqlite_module(), **options)
    _use_sqlite_well(engine, foreign_keys)
    return engine


def _test_rested_connections(engine: Engine) -> None:
    """Ask a connection that was not in use for a while whether it still stands; the pool then takes another.

    To ask each time, as `pool_pre_ping` does, is one more question to the server for every three or four.
    """

    def rests(_connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["rests_since"] = time.monotonic()

    def is_used(connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:
        since = record.info.get("rests_since")
        if since is None or time.monotonic() - since < RESTED_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error

    event.listen(engine, "checkin", rests)
    event.listen(engine, "checkout", is_used)


def _sqlite_module() -> ModuleType:
    try:
        module = import_module("pysqlite3.dbapi2")
    except ImportError:
        module = sqlite3
    if module.sqlite_version_info < SAFE_SQLITE:
        warnings.warn(
            f"SQLite {module.sqlite_version} can damage a WAL database that several processes write; "
            "install pysqlite3 >= 0.6.1 or use PostgreSQL",
            stacklevel=4,
        )
    return module


def _use_sqlite_well(engine: Engine, foreign_keys: bool) -> None:
    pragmas = (
        "busy_timeout=15000",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        f"foreign_keys={'ON' if foreign_keys else 'OFF'}",
    )

    def connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver would begin lazily, and never IMMEDIATE
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    def begin(connection: Connection) -> None:
        # a deferred transaction that starts writing fails at once when another one writes: no timeout applies
        reads = connection.get_execution_options().get("read_only")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", connect)
    event.listen(engine, "begin", begin)
