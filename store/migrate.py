"""Bringing the database to the tables of this version."""

from importlib.util import find_spec
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from store.database import Database, create_database_engine, normalised_url
from store.errors import StoreError

_LOCK = 0x7265676174746131
"""Key of the PostgreSQL advisory lock that one migration at a time holds."""


class SchemaError(StoreError):
    """The database has other tables than this version needs."""


def upgrade(url: str, revision: str = "head") -> None:
    """Create or change the tables. Calls at the same time wait for each other."""
    _run(url, revision, down=False)


def downgrade(url: str, revision: str) -> None:
    """Undo migrations down to `revision` ("base": all of them)."""
    _run(url, revision, down=True)


def current(database: Database) -> str | None:
    """The revision that the database is at; None for an empty one."""
    with database.engine.execution_options(read_only=True).connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """The revision that this version needs."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    if newest is None:
        raise SchemaError("no migrations are installed; reinstall regatta")
    return newest


def check(database: Database) -> None:
    """Raise SchemaError unless the database has the tables of this version."""
    found, needed = current(database), head()
    if found != needed:
        raise SchemaError(
            f"the database is at revision {found or 'none'}, expected {needed}; run `regatta migrate`"
        )


def _run(url: str, revision: str, *, down: bool) -> None:
    # tables are rebuilt on SQLite: with foreign keys on, dropping the old one would delete its children
    engine = create_database_engine(normalised_url(url), foreign_keys=False, pooled=False)
    try:
        with engine.begin() as connection:
            _wait_for_turn(connection)
            config = _config(connection)
            (command.downgrade if down else command.upgrade)(config, revision)
    finally:
        engine.dispose()


def _wait_for_turn(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # on SQLite the transaction is the lock
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _config(connection: Connection | None = None) -> Config:
    spec = find_spec("migrations")
    if spec is None or not spec.submodule_search_locations:
        raise SchemaError("the package `migrations` is not installed; reinstall regatta")
    config = Config()
    config.set_main_option(
        "script_location", str(Path(next(iter(spec.submodule_search_locations)))).replace("%", "%%")
    )
    config.attributes["connection"] = connection
    return config
