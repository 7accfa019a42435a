"""Idempotency-Key: one key and body make one job, whatever happens between."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from store.database import Database
from store.jobs import list_jobs
from store.settings import Settings
from tests.api.parts import places, serving


def post(client: httpx.Client, config: dict[str, Any], key: str, **members: Any) -> httpx.Response:
    body = {"task": "finetune", "config": config} | members
    return client.post("/jobs", json=body, headers={"idempotency-key": key})


def test_the_same_key_and_body_give_the_same_job(client: httpx.Client, config: dict[str, Any]) -> None:
    first, second = post(client, config, "k1"), post(client, config, "k1")
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json()
    assert second.headers["location"] == first.headers["location"]


def test_the_order_of_names_does_not_make_another_body(client: httpx.Client, config: dict[str, Any]) -> None:
    first = post(client, config, "k1")
    assert post(client, dict(reversed(config.items())), "k1").json()["id"] == first.json()["id"]


def test_another_key_makes_another_job(client: httpx.Client, config: dict[str, Any]) -> None:
    assert post(client, config, "k1").json()["id"] != post(client, config, "k2").json()["id"]


def test_the_same_key_with_another_body_is_a_conflict(client: httpx.Client, config: dict[str, Any]) -> None:
    post(client, config, "k1")
    answer = post(client, config, "k1", name="other")
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:regatta:problem:idempotency-conflict"
    assert len(client.get("/jobs").json()["items"]) == 1


def test_a_replay_is_answered_though_the_data_has_gone(
    client: httpx.Client, config: dict[str, Any], roots: Path
) -> None:
    first = post(client, config, "k1")
    shutil.rmtree(roots / "data")
    assert post(client, config, "k1").json()["id"] == first.json()["id"]


def test_a_refused_body_does_not_use_up_the_key(client: httpx.Client, config: dict[str, Any]) -> None:
    assert post(client, config | {"max_steps": "many"}, "k1").status_code == 422
    assert post(client, config, "k1").status_code == 201


@pytest.mark.parametrize("key", ["", "with space", "x" * 256, "tab\there"])
def test_a_key_that_is_no_token_is_refused(
    refusing_client: httpx.Client, config: dict[str, Any], key: str
) -> None:
    assert places(post(refusing_client, config, key)) == [("header", "idempotency-key")]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_racing_requests_make_one_job_for_each_key(
    kind: str, request: pytest.FixtureRequest, settings: Settings, config: dict[str, Any]
) -> None:
    if kind == "postgresql":
        url = request.getfixturevalue("postgres")(request.getfixturevalue("migrated_postgres"))
        settings = settings.model_copy(update={"database_url": url})
    keys = [f"key-{n % 5}" for n in range(40)]
    with (
        serving(settings) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
        ThreadPoolExecutor(10) as pool,
    ):
        answers = list(pool.map(lambda key: post(client, config, key), keys))
    assert sorted({answer.status_code for answer in answers}) == [200, 201]
    assert sum(answer.status_code == 201 for answer in answers) == 5
    database = Database(settings.database_url)
    with database.reading() as session:
        assert len(list_jobs(session, limit=100).items) == 5
    database.dispose()
