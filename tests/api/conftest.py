"""The real application behind a real server, over a real store."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import save_file

from store.database import Database
from store.settings import Settings
from tests.api.keyed import Keyed
from tests.api.parts import Job, serving


def write_roots(folder: Path) -> Path:
    """A folder with a model `models/gemma` and a data set `data/sft`, both sound."""
    model = folder / "models" / "gemma"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"model_type": "gemma"}))
    (model / "tokenizer.json").write_text("{}")
    save_file({"model.norm.weight": np.ones(4, np.float32)}, model / "model.safetensors")
    data = folder / "data" / "sft"
    data.mkdir(parents=True)
    for split, count in (("train", 20), ("dev", 3)):
        rows = [{"src": f"question {n}", "tgt": f"answer {n}"} for n in range(count)]
        (data / f"{split}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """The folder of `write_roots`, for this test alone."""
    return write_roots(tmp_path)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path, migrated_sqlite: Path) -> str:
    """An SQLite database with all tables; `on_both_databases` runs a test on PostgreSQL too."""
    if getattr(request, "param", "sqlite") == "postgresql":
        return request.getfixturevalue("postgres")(request.getfixturevalue("migrated_postgres"))
    path = tmp_path / "regatta.db"
    shutil.copy(migrated_sqlite, path)
    return f"sqlite:///{path}"


@pytest.fixture
def settings(tmp_path: Path, roots: Path, database_url: str) -> Settings:
    return Settings(
        data_dir=tmp_path / "data_dir",
        database_url=database_url,
        model_roots=(roots / "models",),
        data_roots=(roots / "data",),
        poll_s=0.2,
    )


@pytest.fixture
def database(settings: Settings) -> Iterator[Database]:
    database = Database(settings.database_url)
    yield database
    database.dispose()


@pytest.fixture
def client(settings: Settings) -> Iterator[httpx.Client]:
    """A client of a server that runs for the test. The broker is away unless the test asks for it first."""
    with serving(settings) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


@pytest.fixture
def keyed(settings: Settings, database: Database) -> Iterator[Keyed]:
    """A server that wants keys."""
    with serving(settings.model_copy(update={"api_keys_required": True})) as server:
        yield Keyed(server.url, database, server.server.app)


@pytest.fixture(scope="session")
def refusing_client(
    tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path
) -> Iterator[httpx.Client]:
    """A client of one server for all tests that change nothing: of what it must refuse, or only shows."""
    folder = write_roots(tmp_path_factory.mktemp("shared"))
    shutil.copy(migrated_sqlite, folder / "regatta.db")
    settings = Settings(
        data_dir=folder,
        database_url=f"sqlite:///{folder / 'regatta.db'}",
        model_roots=(folder / "models",),
        data_roots=(folder / "data",),
    )
    with serving(settings) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


@pytest.fixture
def config() -> dict[str, Any]:
    """A small valid argument file."""
    return {
        "model_name_or_path": "gemma",
        "dataset_name_or_path": "sft",
        "output_dir": "out",
        "do_train": True,
        "max_steps": 4,
        "learning_rate": 3e-05,
    }


@pytest.fixture
def submit(client: httpx.Client, config: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """POST a valid job and give its document."""

    def post(**members: Any) -> dict[str, Any]:
        answer = client.post("/jobs", json={"task": "finetune", "config": config} | members)
        assert answer.status_code == 201, answer.text
        return answer.json()

    return post


@pytest.fixture
def job(submit: Callable[..., dict[str, Any]], database: Database, settings: Settings) -> Job:
    """A queued job and the hands of the worker that runs it."""
    return Job(submit()["id"], database, settings)
