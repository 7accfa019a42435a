"""Requests of other web sites are refused, and every answer carries the security headers."""

from typing import Any

import httpx
import pytest

from store.settings import Settings
from tests.api.parts import serving


@pytest.fixture
def body(config: dict[str, Any]) -> dict[str, Any]:
    return {"task": "finetune", "config": config}


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://["},
    ],
)
def test_another_site_cannot_change_anything(
    refusing_client: httpx.Client, body: dict[str, Any], headers: dict[str, str]
) -> None:
    answer = refusing_client.post("/jobs", json=body, headers=headers)
    assert answer.status_code == 403
    assert answer.json()["type"] == "urn:regatta:problem:cross-site"
    assert refusing_client.get("/jobs").json()["items"] == []


def test_its_own_pages_can(client: httpx.Client, body: dict[str, Any]) -> None:
    headers = {"sec-fetch-site": "same-origin", "origin": str(client.base_url).rstrip("/")}
    assert client.post("/jobs", json=body, headers=headers).status_code == 201


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "[", ""])
def test_a_name_that_was_made_to_point_here_is_refused(refusing_client: httpx.Client, host: str) -> None:
    answer = refusing_client.get("/jobs", headers={"host": host})
    assert answer.status_code in (400, 421)
    assert "items" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "a.localhost", "127.0.0.1:1", "[::1]:1"])
def test_this_machine_has_many_names(refusing_client: httpx.Client, host: str) -> None:
    assert refusing_client.get("/healthz", headers={"host": host}).status_code == 200


def test_further_names_can_be_allowed(settings: Settings) -> None:
    settings = settings.model_copy(update={"allowed_hosts": ("Regatta.example",)})
    with serving(settings) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/healthz", headers={"host": "regatta.example:8000"}).status_code == 200
        assert client.get("/healthz", headers={"host": "other.example"}).status_code == 421


@pytest.mark.parametrize("path", ["/jobs", "/nope", "/jobs/nope", "/jobs?limit=x", "/healthz"])
def test_every_answer_carries_the_security_headers(refusing_client: httpx.Client, path: str) -> None:
    headers = refusing_client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["cache-control"] == "no-store"
