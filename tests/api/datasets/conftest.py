"""Data sets as the bodies of requests."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from store.settings import Settings
from tests.api.parts import serving

SMALL_LIMIT = 8 << 20


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Every test with a database of its own runs on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        path = tmp_path / "regatta.db"
        shutil.copy(request.getfixturevalue("migrated_sqlite"), path)
        return f"sqlite:///{path}"
    return request.getfixturevalue("postgres")(request.getfixturevalue("migrated_postgres"))


@pytest.fixture(scope="module")
def shared_dir(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    shutil.copy(migrated_sqlite, folder / "regatta.db")
    return folder


@pytest.fixture(scope="module")
def shared_client(shared_dir: Path) -> Iterator[httpx.Client]:
    """A client of one server for the tests of a module; it takes at most `SMALL_LIMIT` bytes."""
    settings = Settings(data_dir=shared_dir, max_dataset_bytes=SMALL_LIMIT)
    with serving(settings) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        yield client


@pytest.fixture
def nothing_left(shared_dir: Path) -> Iterator[None]:
    """Holds a test to leaving no file behind."""
    before = stored_files(shared_dir)
    yield
    assert stored_files(shared_dir) == before


def stored_files(data_dir: Path) -> set[Path]:
    """All files of uploads and artifacts."""
    return {
        path for part in ("uploads", "artifacts") for path in (data_dir / part).rglob("*") if path.is_file()
    }


def sft_lines(count: int = 3, word: str = "answer") -> bytes:
    rows = [{"src": f"question {n}", "tgt": f"{word} {n}"} for n in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def dpo_lines(count: int = 3) -> bytes:
    rows = [{"src": f"q {n}", "response": ["good", "bad"], "sort": [1, 0]} for n in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def kto_lines(count: int = 3) -> bytes:
    rows = [{"src": f"q {n}", "response": ["good"], "sort": [n % 2]} for n in range(count)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
