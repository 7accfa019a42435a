"""Liveness and readiness, each part by name."""

import shutil
from pathlib import Path

import httpx

from store.database import Database
from store.migrate import downgrade
from store.settings import Settings
from tests.api.parts import serving


def test_a_server_lives_whatever_is_away(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


def test_a_server_is_ready_when_all_its_parts_are_there(broker: object, client: httpx.Client) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "ready"
    assert list(answer.json()["checks"]) == ["database", "migrations", "broker", "artifacts"]


def failing(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"]
    return [name for name, check in answer.json()["checks"].items() if not check["ok"]]


def test_a_broker_that_is_away_is_named(client: httpx.Client) -> None:
    answer = client.get("/readyz")
    assert failing(answer) == ["broker"]
    assert "broker" in answer.json()["detail"]


def test_missing_migrations_are_named_with_the_remedy(
    broker: object, client: httpx.Client, settings: Settings
) -> None:
    downgrade(settings.database_url, "base")
    answer = client.get("/readyz")
    assert failing(answer) == ["migrations"]
    assert "regatta migrate" in answer.json()["detail"]


def test_artifacts_that_cannot_be_written_are_named(
    broker: object, client: httpx.Client, settings: Settings
) -> None:
    folder = Path(settings.artifacts_url.removeprefix("file://"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("in the way")
    assert failing(client.get("/readyz")) == ["artifacts"]


def test_a_database_that_is_away_is_named_without_its_address(broker: object, settings: Settings) -> None:
    url = "postgresql://someone:hush@127.0.0.1:9/regatta?connect_timeout=1"
    settings = settings.model_copy(update={"database_url": url})
    with serving(settings) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        answer = client.get("/readyz")
        assert failing(answer) == ["database", "migrations"]
        assert "hush" not in answer.text
        assert "127.0.0.1" not in answer.text
        jobs = client.get("/jobs")
        assert (jobs.status_code, jobs.json()["type"]) == (503, "urn:regatta:problem:unavailable")
        assert jobs.json()["incident"]


def test_the_database_of_a_client_without_tables_is_an_incident(
    client: httpx.Client, database: Database, settings: Settings
) -> None:
    database.dispose()
    downgrade(settings.database_url, "base")
    answer = client.get("/jobs")
    assert answer.status_code == 503
