"""What belongs to another project is not there: of every route that the application has."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from api.access import OWNED
from api.authentication import is_open
from api.principal import scope_of
from store.keys import Scope
from store.secretbox import ensure_key_file
from store.settings import Settings
from tests.api.keyed import Keyed
from tests.api.openai_face.given import chats
from tests.api.parts import Job, on_both_databases, streaming, take

UNKNOWN = "01890000-0000-7000-8000-000000000000"
BELONGS_TO_NOBODY = {"family", "name", "path", "task", "host", "key_id", "project", "split", "model"}
"""Path parameters that name nothing of a project, or something below a thing that is checked itself."""


MARK = "confidential"
"""What everything of the default project is called, so that it can be looked for."""


@pytest.fixture
def theirs(keyed: Keyed, config: dict[str, Any], settings: Settings, tmp_path: Path) -> dict[str, str]:
    """A thing of each kind that belongs to the default project, by the name of its path parameter."""
    settings.data_dir.mkdir(exist_ok=True)
    ensure_key_file(settings)
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / f"{MARK}.bin").write_bytes(b"weights")
    with keyed.client(scopes=[Scope.admin]) as owner:

        def post(path: str, **options: Any) -> dict[str, Any]:
            answer = owner.post(path, **options)
            assert answer.is_success, answer.text
            return answer.json()

        assert owner.put(f"/secrets/{MARK.upper()}", json={"value": f"{MARK} value"}).is_success
        upload = {"purpose": (None, "fine-tune"), "file": (f"{MARK}.jsonl", chats())}
        file_id = post("/v1/files", files=upload)["id"]
        hook = {"url": f"https://{MARK}.example.com/hook"}
        made = {"model": "gemma", "suffix": MARK, "metadata": {MARK: MARK}, "regatta": {"webhook": hook}}
        fine_tuning_job = post("/v1/fine_tuning/jobs", json=made | {"training_file": file_id})["id"]
        step = {"id": MARK, "task": "finetune", "config": config}
        pipeline = post("/pipelines", json={"name": MARK, "jobs": [step]})["id"]
    job = Job(fine_tuning_job.removeprefix("ftjob-"), keyed.database, settings)
    job.start()
    job.step(1, 2)
    job.archive.append(job.id, job.lines(3))
    job.publish("checkpoint-2", tmp_path / "published", step=2, is_best=False)
    job.publish("result", tmp_path / "published")
    job.finish()
    return {
        "job_id": job.id,
        "fine_tuning_job_id": fine_tuning_job,
        "dataset_id": file_id.removeprefix("file-"),
        "file_id": file_id,
        "pipeline_id": pipeline,
    }


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
    seen = [thing.removeprefix(OWNED[name].prefix) for name, thing in theirs.items()]
    secret = [*seen, MARK, MARK.upper()]
    with keyed.client(keyed.project("other")) as stranger:
        for call in calls(keyed.app):
            if call.method == "GET" and not call.parameters and call.scope is Scope.read:
                text = stranger.get(call.path).text
                assert not any(thing in text for thing in secret), call
    with keyed.client() as owner:
        shown = "".join(owner.get(path).text for path in ("/jobs", "/datasets", "/pipelines", "/secrets"))
        assert all(thing in shown for thing in secret)


@on_both_databases
def test_what_belongs_to_others_is_as_unknown_in_bodies_and_filters(
    keyed: Keyed, theirs: dict[str, str], config: dict[str, Any]
) -> None:
    def refer(things: dict[str, str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Requests that name the things elsewhere than in the path."""
        job_id, dataset_id, file_id = things["job_id"], things["dataset_id"], things["file_id"]
        for argument, text in (
            ("model_name_or_path", f"job:{job_id}"),
            ("model_name_or_path", f"job:{job_id}/checkpoint-2"),
            ("dataset_name_or_path", f"dataset:{dataset_id}"),
        ):
            body = {"task": "finetune", "config": config | {argument: text}}
            yield "POST", "/jobs", {"json": body}
            yield "POST", "/jobs/validate", {"json": body}
            yield "POST", "/pipelines", {"json": {"jobs": [body | {"id": "one"}]}}
            yield "POST", f"/jobs/{own}/clone", {"json": {"config": {argument: text}}}
        for body in (
            {"model": "gemma", "training_file": file_id},
            {"model": "gemma", "training_file": own_file, "validation_file": file_id},
            {"model": f"job:{job_id}", "training_file": own_file},
            {"model": f"ft:gemma:default:{MARK}:{job_id}", "training_file": own_file},
        ):
            yield "POST", "/v1/fine_tuning/jobs", {"json": body}
        yield "GET", "/events", {"params": {"job": job_id}}
        yield "GET", "/v1/files", {"params": {"after": file_id}}
        yield "GET", "/v1/fine_tuning/jobs", {"params": {"after": things["fine_tuning_job_id"]}}

    with keyed.client(keyed.project("other")) as stranger:
        own = stranger.post("/jobs", json={"task": "finetune", "config": config}).json()["id"]
        upload = {"purpose": (None, "fine-tune"), "file": ("own.jsonl", chats())}
        own_file = stranger.post("/v1/files", files=upload).json()["id"]
        unknown = {name: f"{OWNED[name].prefix}{UNKNOWN}" for name in theirs}
        ids = [thing.removeprefix(OWNED[name].prefix) for name, thing in theirs.items()]
        for foreign, absent in zip(refer(theirs), refer(unknown), strict=True):
            answers = [
                stranger.request(method, path, **options) for method, path, options in (foreign, absent)
            ]
            assert answers[0].status_code == answers[1].status_code != 201, foreign
            assert words(answers[0], ids) == words(answers[1], ids), foreign


def test_a_project_as_a_filter_is_as_unknown_when_it_is_anothers(keyed: Keyed) -> None:
    with keyed.client(keyed.project("other")) as stranger:
        for path in ("/events", "/secrets", "/secrets/TOKEN"):
            foreign, absent = (
                stranger.get(path, params={"project": name}) for name in ("default", "nobodys")
            )
            assert (foreign.status_code, absent.status_code) == (404, 404), path
            assert words(foreign, []).replace("default", "nobodys") == words(absent, []), path


def test_an_idempotency_key_is_the_projects_own(keyed: Keyed, config: dict[str, Any]) -> None:
    headers = {"Idempotency-Key": "the-same"}
    body = {"task": "finetune", "config": config}
    with keyed.client() as owner, keyed.client(keyed.project("other")) as stranger:
        first = owner.post("/jobs", json=body, headers=headers)
        second = stranger.post("/jobs", json=body | {"name": "another body"}, headers=headers)
        assert (first.status_code, second.status_code) == (201, 201)
        assert first.json()["id"] != second.json()["id"]


def test_the_same_content_is_not_known_from_another_project(keyed: Keyed) -> None:
    lines: dict[str, Any] = {
        "content": '{"src": "a question", "tgt": "an answer"}\n',
        "headers": {"content-type": "application/jsonl"},
    }
    with keyed.client() as owner, keyed.client(keyed.project("other")) as stranger:
        assert owner.post("/datasets", **lines).status_code == 201
        assert owner.post("/datasets/validate", **lines).json()["known"]
        assert stranger.post("/datasets/validate", **lines).json()["known"] is None
        assert stranger.post("/datasets", **lines).status_code == 201


def test_the_stream_of_all_events_has_those_of_the_own_project_alone(
    keyed: Keyed, config: dict[str, Any]
) -> None:
    body = {"task": "finetune", "config": config}
    with keyed.client() as owner, keyed.client(keyed.project("other")) as stranger:
        owner.post("/jobs", json=body)
        with streaming(stranger, "/events") as events:
            owner.post("/jobs", json=body)
            own = stranger.post("/jobs", json=body).json()["id"]
            seen = [json.loads(event.data) for event in take(events, 3)]
        assert {event["project"] for event in seen} == {"other"}
        assert seen[-1]["job_id"] == own


def test_a_queue_tells_how_many_are_ahead_and_nothing_of_who_they_are(
    keyed: Keyed, config: dict[str, Any]
) -> None:
    body = {"task": "finetune", "config": config}
    with keyed.client() as owner, keyed.client(keyed.project("other")) as stranger:
        theirs = owner.post("/jobs", json=body).json()["id"]
        own = stranger.post("/jobs", json=body)
        assert own.json()["queue"]["ahead"] == 1
        assert theirs not in own.text


@on_both_databases
def test_hosts_show_that_they_are_busy_and_not_with_what(
    keyed: Keyed, config: dict[str, Any], settings: Settings
) -> None:
    with keyed.client() as owner, keyed.client(keyed.project("other")) as stranger:
        job_id = owner.post("/jobs", json={"task": "finetune", "config": config}).json()["id"]
        Job(job_id, keyed.database, settings).start()
        (host,) = stranger.get("/hosts").json()["items"]
        assert host["running"] == [{"job_id": None, "attempt": 1, "rank": 0, "devices": [0]}]
        assert owner.get("/hosts").json()["items"][0]["running"][0]["job_id"] == job_id


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
