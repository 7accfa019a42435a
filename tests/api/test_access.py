"""What belongs to another project is not there: of every route that the application has."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from api.access import OWNED
from api.authentication import is_open
from api.principal import scope_of
from store import tables
from store.clock import database_now
from store.keys import Scope
from store.settings import Settings
from tests.api.keyed import Keyed
from tests.api.parts import Job, on_both_databases

UNKNOWN = "01890000-0000-7000-8000-000000000000"
BELONGS_TO_NOBODY = {"family", "name", "path", "task", "host", "key_id", "project", "split", "model"}
"""Path parameters that name nothing of a project, or something below a thing that is checked itself."""


@pytest.fixture
def theirs(keyed: Keyed, config: dict[str, Any], settings: Settings) -> dict[str, str]:
    """A thing of each kind that belongs to the default project, by the name of its path parameter."""
    with keyed.client() as owner:
        job_id = owner.post("/jobs", json={"task": "finetune", "config": config}).json()["id"]
    Job(job_id, keyed.database, settings).start()
    dataset_id = UNKNOWN[:-1] + "1"
    things = {
        "job_id": job_id,
        "fine_tuning_job_id": f"ftjob-{job_id}",
        "dataset_id": dataset_id,
        "file_id": f"file-{dataset_id}",
        "pipeline_id": UNKNOWN[:-1] + "2",
    }
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


@dataclass(frozen=True)
class Call:
    """A way to call the application, described in its document or not."""

    method: str
    path: str
    scope: Scope

    @property
    def parameters(self) -> list[str]:
        return re.findall(r"{(\w+)(?::\w+)?}", self.path)

    def address(self, things: dict[str, str]) -> str:
        return re.sub(r"{(\w+)(?::\w+)?}", lambda match: things.get(match[1], "x"), self.path)


def routes_of(routes: Iterable[Any]) -> Iterator[APIRoute]:
    """All endpoints, those of included routers too."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif (included := getattr(route, "original_router", None)) is not None:
            yield from routes_of(included.routes)


def calls(app: FastAPI) -> list[Call]:
    return [
        Call(method, route.path, scope_of(route, method))
        for route in routes_of(app.routes)
        for method in sorted(route.methods or ())
    ]


def words(answer: httpx.Response, things: Iterable[str]) -> str:
    """What an answer says, with every id of the things in one form and without what tells requests apart."""
    text = answer.text
    for thing in things:
        text = text.replace(thing, UNKNOWN)
    return re.sub(r'"request_id":"\w+"', "", text)


def test_what_is_looked_at_is_all_that_is_described_and_more(keyed: Keyed) -> None:
    with keyed.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    seen = {(call.method, re.sub(r":\w+}", "}", call.path)) for call in calls(keyed.app)}
    assert described <= seen


def test_every_path_parameter_is_known_to_be_owned_or_not(keyed: Keyed) -> None:
    names = {name for call in calls(keyed.app) for name in call.parameters}
    assert names <= OWNED.keys() | BELONGS_TO_NOBODY


@on_both_databases
def test_another_projects_things_are_answered_like_unknown_ones(keyed: Keyed, theirs: dict[str, str]) -> None:
    unknown = {name: f"{OWNED[name].prefix}{UNKNOWN}" for name in theirs}
    ids = [thing.removeprefix(OWNED[name].prefix) for name, thing in theirs.items()]
    seen = set()
    with keyed.client(keyed.project("other")) as stranger:
        for call in calls(keyed.app):
            if OWNED.keys().isdisjoint(call.parameters) or call.scope is Scope.admin:
                continue
            foreign = stranger.request(call.method, call.address(theirs))
            absent = stranger.request(call.method, call.address(unknown))
            assert (foreign.status_code, absent.status_code) == (404, 404), call
            assert words(foreign, ids) == words(absent, ids), call
            seen |= set(call.parameters) & OWNED.keys()
    assert seen == OWNED.keys()


def test_its_owner_and_an_administrator_find_it(keyed: Keyed, theirs: dict[str, str]) -> None:
    keyed.project("other")
    for client in (keyed.client(), keyed.client("other", [Scope.admin])):
        with client:
            assert client.get(f"/jobs/{theirs['job_id']}").status_code == 200


@on_both_databases
def test_no_list_shows_what_belongs_to_others(keyed: Keyed, theirs: dict[str, str]) -> None:
    ids = [thing.removeprefix(OWNED[name].prefix) for name, thing in theirs.items()]
    with keyed.client(keyed.project("other")) as stranger:
        for call in calls(keyed.app):
            if call.method == "GET" and not call.parameters and call.scope is Scope.read:
                text = stranger.get(call.path).text
                assert not any(thing in text for thing in ids), call


def test_administrators_alone_may_call_what_is_marked_so(keyed: Keyed) -> None:
    marked = [call for call in calls(keyed.app) if call.scope is Scope.admin]
    assert {("POST", "/keys"), ("PATCH", "/projects/{project}"), ("PUT", "/secrets/{name}")} <= {
        (call.method, call.path) for call in marked
    }
    with keyed.client() as client:
        for call in marked:
            assert client.request(call.method, call.address({})).status_code == 403, call


def test_nothing_can_be_called_without_a_key_but_what_says_so(keyed: Keyed) -> None:
    with keyed.without() as stranger:
        for call in calls(keyed.app):
            answer = stranger.request(call.method, call.address({}))
            assert (answer.status_code == 401) is not is_open(call.method, call.path), call
