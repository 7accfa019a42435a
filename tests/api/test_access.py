"""What belongs to another project is not there: of every route that the application has."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.access import OWNED
from store import tables
from store.clock import database_now
from store.keys import Scope
from store.settings import Settings
from tests.api.keyed import Keyed
from tests.api.parts import Job

UNKNOWN = "01890000-0000-7000-8000-000000000000"
BELONGS_TO_NOBODY = {"family", "name", "path", "task", "host", "key_id", "project", "split"}
"""Path parameters that name nothing of a project, or something below a thing that is checked itself."""


@pytest.fixture
def theirs(keyed: Keyed, config: dict[str, Any], settings: Settings) -> dict[str, str]:
    """A thing of each kind that belongs to the default project, by the name of its path parameter."""
    with keyed.client() as owner:
        job_id = owner.post("/jobs", json={"task": "finetune", "config": config}).json()["id"]
    Job(job_id, keyed.database, settings).start()
    things = {"job_id": job_id, "dataset_id": UNKNOWN[:-1] + "1", "pipeline_id": UNKNOWN[:-1] + "2"}
    with keyed.database.transaction() as session:
        now = database_now(session)
        common = {"project": "default", "created_at": now}
        session.add(tables.Pipeline(id=things["pipeline_id"], **common))
        session.add(
            tables.Dataset(
                id=things["dataset_id"], kind="sft", sha256="0" * 64, key="k", bytes=1, splits={}, **common
            )
        )
    return things


def calls(client: httpx.Client) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of everything that can be called, and HEAD where GET can."""
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            yield method.upper(), path, operation
            if method == "get":
                yield "HEAD", path, operation


def parameters(path: str) -> list[str]:
    return re.findall(r"{(\w+)(?::\w+)?}", path)


def address(path: str, things: dict[str, str]) -> str:
    return re.sub(r"{(\w+)(?::\w+)?}", lambda match: things.get(match[1], "x"), path)


def test_every_path_parameter_is_known_to_be_owned_or_not(refusing_client: httpx.Client) -> None:
    names = {name for _, path, _ in calls(refusing_client) for name in parameters(path)}
    assert names <= OWNED.keys() | BELONGS_TO_NOBODY


def test_another_projects_things_are_answered_like_unknown_ones(keyed: Keyed, theirs: dict[str, str]) -> None:
    unknown = dict.fromkeys(theirs, UNKNOWN)
    seen = 0
    with keyed.client(keyed.project("other")) as stranger:
        for method, path, operation in list(calls(stranger)):
            if OWNED.keys().isdisjoint(parameters(path)) or operation["x-regatta-scope"] == "admin":
                continue
            foreign = stranger.request(method, address(path, theirs))
            absent = stranger.request(method, address(path, unknown))
            assert foreign.status_code == absent.status_code, (method, path)
            assert foreign.status_code in (404, 405), (method, path)
            text = foreign.text
            for thing in theirs.values():
                text = text.replace(thing, UNKNOWN)
            assert text == absent.text, (method, path)
            seen += foreign.status_code == 404
    assert seen > 15


def test_its_owner_and_an_administrator_find_it(keyed: Keyed, theirs: dict[str, str]) -> None:
    keyed.project("other")
    for client in (keyed.client(), keyed.client("other", [Scope.admin])):
        with client:
            assert client.get(f"/jobs/{theirs['job_id']}").status_code == 200


def test_no_list_shows_what_belongs_to_others(keyed: Keyed, theirs: dict[str, str]) -> None:
    with keyed.client(keyed.project("other")) as stranger:
        for method, path, operation in list(calls(stranger)):
            if method != "GET" or parameters(path) or operation.get("x-regatta-scope") != "read":
                continue
            answer = stranger.get(path, params={"follow": "false"} if path == "/events" else None)
            for thing in theirs.values():
                assert thing not in answer.text, path


def test_administrators_alone_may_call_what_is_marked_so(keyed: Keyed) -> None:
    with keyed.client() as client:
        marked = [call for call in calls(client) if call[2].get("x-regatta-scope") == "admin"]
        assert {("POST", "/keys"), ("PATCH", "/projects/{project}")} <= {call[:2] for call in marked}
        for method, path, _ in marked:
            assert client.request(method, address(path, {})).status_code in (403, 405), (method, path)


def test_nothing_can_be_called_without_a_key_but_what_says_so(keyed: Keyed) -> None:
    with keyed.client() as client, keyed.without() as stranger:
        for method, path, operation in list(calls(client)):
            answer = stranger.request(method, address(path, {}))
            if operation["security"]:
                assert answer.status_code == 401, (method, path)
            else:
                assert answer.status_code != 401, (method, path)
