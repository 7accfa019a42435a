"""Keys and projects through the API."""

from typing import Any

import httpx
import pytest

from store.keys import Scope
from tests.api.keyed import Keyed
from tests.api.parts import on_both_databases, places


@on_both_databases
def test_a_new_key_is_shown_once_and_opens_the_service(keyed: Keyed) -> None:
    with keyed.client(scopes=[Scope.admin]) as boss:
        made = boss.post("/keys", json={"name": "ci", "scopes": ["read"], "expires_in_s": 60})
        assert made.status_code == 201
        document = made.json()
        with keyed.with_key(document.pop("key")) as client:
            assert client.get("/jobs").status_code == 200
        listed = boss.get("/keys").json()["items"][0]
        assert listed == document | {"last_used_at": listed["last_used_at"]}
        assert document["expires_at"] is not None


@on_both_databases
def test_keys_are_of_a_project_that_is_there(client: httpx.Client) -> None:
    answer = client.post("/keys", json={"name": "ci", "project": "nowhere"})
    assert places(answer) == [("body", "project")]
    assert client.post("/projects", json={"name": "somewhere"}).status_code == 201
    answer = client.post("/keys", json={"name": "ci", "project": "somewhere"})
    assert (answer.status_code, answer.json()["project"]) == (201, "somewhere")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, ("body", "name")),
        ({"name": ""}, ("body", "name")),
        ({"name": "a\nb"}, ("body", "name")),
        ({"name": 1}, ("body", "name")),
        ({"name": "a", "scopes": []}, ("body", "scopes")),
        ({"name": "a", "scopes": ["root"]}, ("body", "scopes", 0)),
        ({"name": "a", "expires_in_s": 0}, ("body", "expires_in_s")),
        ({"name": "a", "expires_in_s": "60"}, ("body", "expires_in_s")),
        ({"name": "a", "project": "../x"}, ("body", "project")),
        ({"name": "a", "scope": ["read"]}, ("body", "scope")),
    ],
)
def test_a_wrong_request_for_a_key_is_explained(
    refusing_client: httpx.Client, body: dict[str, Any], place: tuple[str | int, ...]
) -> None:
    assert places(refusing_client.post("/keys", json=body)) == [place]


def test_an_unknown_key_cannot_be_revoked(refusing_client: httpx.Client) -> None:
    assert refusing_client.delete("/keys/nope").status_code == 404


@on_both_databases
def test_limits_of_a_project_are_changed_and_lifted(client: httpx.Client) -> None:
    made = client.post("/projects", json={"name": "fleet", "most_queued": 3, "most_devices": 8}).json()
    assert (made["most_queued"], made["most_running"], made["most_devices"]) == (3, None, 8)
    changed = client.patch("/projects/fleet", json={"most_queued": None, "most_running": 2}).json()
    assert (changed["most_queued"], changed["most_running"], changed["most_devices"]) == (None, 2, 8)
    assert client.get("/projects/fleet").json() == changed
    assert [project["name"] for project in client.get("/projects").json()["items"]] == ["default", "fleet"]


@on_both_databases
def test_projects_are_refused_with_a_reason(client: httpx.Client) -> None:
    assert client.post("/projects", json={"name": "default"}).json()["type"] == "urn:regatta:problem:exists"
    assert places(client.post("/projects", json={"name": "Fleet"})) == [("body", "name")]
    assert places(client.patch("/projects/default", json={"most_queued": -1})) == [("body", "most_queued")]
    assert places(client.patch("/projects/default", json={"name": "x"})) == [("body", "name")]
    assert client.patch("/projects/nope", json={"most_queued": 1}).status_code == 404
    assert client.get("/projects/nope").status_code == 404


def test_a_project_sees_itself_alone(keyed: Keyed) -> None:
    with keyed.client(keyed.project("fleet")) as client:
        assert [project["name"] for project in client.get("/projects").json()["items"]] == ["fleet"]
        assert client.get("/projects/default").status_code == 404
        assert client.get("/projects/fleet").status_code == 200
        assert client.patch("/projects/fleet", json={"most_queued": None}).status_code == 403
