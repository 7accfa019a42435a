"""The database's history, on both databases."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect

from store.database import Database
from store.jobs import create_job, get_job
from store.migrate import SchemaError, check, current, downgrade, head, upgrade
from store.tables import Base
from tests.store.given import new_job


def tables(database: Database) -> set[str]:
    return set(inspect(database.engine).get_table_names()) - {"alembic_version"}


def test_the_migrations_make_exactly_the_tables_of_this_version(empty_database_url: str) -> None:
    upgrade(empty_database_url)
    database = Database(empty_database_url)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []
    database.dispose()


def test_up_down_and_up_again(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    assert current(database) is None
    upgrade(empty_database_url)
    assert (current(database), tables(database)) == (head(), set(Base.metadata.tables))
    downgrade(empty_database_url, "base")
    assert (current(database), tables(database)) == (None, set())
    upgrade(empty_database_url)
    check(database)
    database.dispose()


def test_upgrading_twice_keeps_the_data(database: Database, database_url: str) -> None:
    with database.transaction() as session:
        job_id = create_job(session, new_job()).id
    upgrade(database_url)
    with database.reading() as session:
        assert get_job(session, job_id) is not None


def test_readiness_names_both_revisions_and_the_remedy(empty_database_url: str) -> None:
    database = Database(empty_database_url)
    with pytest.raises(SchemaError, match=rf"at revision none, expected {head()}; run `regatta migrate`"):
        check(database)
    database.dispose()


def test_processes_that_upgrade_at_once_wait_for_each_other(empty_database_url: str) -> None:
    script = "import sys; from store.migrate import upgrade; upgrade(sys.argv[1])"
    upgrades = [
        subprocess.Popen(
            [sys.executable, "-c", script, empty_database_url], stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        errors = [process.communicate(timeout=90)[1] for process in upgrades]
    finally:
        for process in upgrades:
            process.kill()
    assert [process.returncode for process in upgrades] == [0, 0, 0], errors
    database = Database(empty_database_url)
    check(database)
    database.dispose()


def test_the_migrations_are_found_from_any_directory(tmp_path: Path) -> None:
    script = "from store.migrate import head, upgrade; upgrade('sqlite:///x.db'); print(head())"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == head()
    assert (tmp_path / "x.db").exists()
