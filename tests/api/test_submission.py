"""POST /jobs and POST /jobs/validate: what is accepted, and how everything else is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from store.database import Database
from store.jobs import list_jobs
from store.settings import Settings
from store.wake import SCHEDULER, Listener
from tests.api.parts import places

Submit = Callable[..., dict[str, Any]]
JSON = {"content-type": "application/json"}


def count_jobs(database: Database) -> int:
    with database.reading() as session:
        return len(list_jobs(session, limit=1000).items)


def test_a_valid_job_is_created_and_queued(client: httpx.Client, config: dict[str, Any]) -> None:
    body = {
        "task": "finetune",
        "config": config,
        "name": "first",
        "labels": {"team": "search"},
        "priority": 3,
    }
    answer = client.post("/jobs", json=body)
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["location"] == f"/jobs/{job['id']}"
    assert client.get(answer.headers["location"]).json() == job
    assert (job["status"], job["reason"], job["attempt"]) == ("queued", "submitted", 1)
    assert (job["name"], job["labels"], job["priority"]) == ("first", {"team": "search"}, 3)
    assert job["resources"] == {"nodes": 1, "devices_per_node": 1, "device": "cpu"}
    assert job["created_at"].endswith("Z")
    assert job["started_at"] is job["finished_at"] is job["placement"] is None


def test_the_config_is_shown_as_given_and_as_resolved(
    submit: Submit, config: dict[str, Any], roots: Path
) -> None:
    job = submit()
    assert job["config"] == config
    assert job["resolved_config"]["model_name_or_path"] == str(roots / "models" / "gemma")
    assert job["resolved_config"]["learning_rate"] == 3e-05
    assert len(job["resolved_config"]) > 100


def test_links_of_a_job_lead_somewhere(client: httpx.Client, submit: Submit) -> None:
    links = submit()["links"]
    for name in ("self", "events", "logs", "metrics", "checkpoints"):
        assert client.get(links[name]).status_code == 200


def test_jobs_are_accepted_while_the_broker_is_away(submit: Submit, settings: Settings) -> None:
    assert not Path(settings.broker_url.removeprefix("unix://").partition("?")[0]).exists()
    assert submit()["status"] == "queued"


def test_a_new_job_wakes_the_scheduler(broker: object, submit: Submit, settings: Settings) -> None:
    with Listener(settings.broker_url, SCHEDULER) as listener:
        listener.wait(0.1)  # subscribes
        submit()
        assert listener.wait(10)


def test_validation_answers_what_would_be_stored_and_stores_nothing(
    client: httpx.Client, config: dict[str, Any], database: Database
) -> None:
    answer = client.post("/jobs/validate", json={"task": "finetune", "config": config})
    assert answer.status_code == 200
    assert answer.json()["config"] == config
    assert answer.json()["resolved_config"]["max_steps"] == 4
    assert answer.json()["statistics"]["train"]["examples"] == 20
    assert count_jobs(database) == 0


def test_warnings_are_told_at_validation_and_kept_on_the_job(
    client: httpx.Client, config: dict[str, Any]
) -> None:
    config["fp16"] = True
    body = {"task": "finetune", "config": config}
    warned = client.post("/jobs/validate", json=body).json()["warnings"]
    assert ["body", "config", "fp16"] in [warning["loc"] for warning in warned]
    assert client.post("/jobs", json=body).json()["warnings"] == warned


def test_a_secret_is_never_shown_or_stored(
    client: httpx.Client, config: dict[str, Any], settings: Settings
) -> None:
    config["aistudio_token"] = "hush-hush-4711"
    answer = client.post("/jobs", json={"task": "finetune", "config": config})
    assert "hush-hush-4711" not in answer.text
    assert "hush-hush-4711" not in client.get("/jobs").text
    assert b"hush-hush-4711" not in Path(settings.database_url.removeprefix("sqlite:///")).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"learing_rate": 1e-4}, ("learing_rate",)),
        ({"learning_rate": "fast"}, ("learning_rate",)),
        ({"learning_rate": -1.0}, ("learning_rate",)),
        ({"max_steps": [1]}, ("max_steps",)),
        ({"fp16": True, "bf16": True}, ("fp16",)),
        ({"src_length": 2048, "max_length": 1024}, ("src_length",)),
        (
            {
                "load_best_model_at_end": True,
                "evaluation_strategy": "epoch",
                "save_strategy": "steps",
                "do_eval": True,
            },
            ("load_best_model_at_end",),
        ),
        ({"model_name_or_path": "nowhere"}, ("model_name_or_path",)),
        ({"model_name_or_path": "/etc"}, ("model_name_or_path",)),
        ({"model_name_or_path": "../models/gemma"}, ("model_name_or_path",)),
        ({"dataset_name_or_path": "nowhere"}, ("dataset_name_or_path",)),
        ({"dataset_name_or_path": "/etc"}, ("dataset_name_or_path",)),
        ({"output_dir": "/tmp/elsewhere"}, ("output_dir",)),
        ({"sharding": "stage2", "pipeline_parallel_degree": 2}, ("sharding",)),
        ({"tensor_parallel_degree": 3}, ("tensor_parallel_degree",)),
    ],
)
def test_a_bad_argument_is_named_with_its_remedy(
    refusing_client: httpx.Client,
    config: dict[str, Any],
    arguments: dict[str, Any],
    place: tuple[str],
) -> None:
    body = {"task": "finetune", "config": config | arguments}
    for path in ("/jobs", "/jobs/validate"):
        answer = refusing_client.post(path, json=body)
        assert ("body", "config", *place) in places(answer)
        assert answer.headers["content-type"] == "application/problem+json"
        assert all(error["msg"] and error["hint"] for error in answer.json()["errors"]), answer.text


def test_a_refused_job_is_not_stored(
    client: httpx.Client, config: dict[str, Any], database: Database
) -> None:
    body = {"task": "finetune", "config": config | {"max_steps": "many"}}
    assert client.post("/jobs", json=body).status_code == 422
    assert count_jobs(database) == 0


def test_a_broken_data_line_is_named_by_its_number(
    client: httpx.Client, config: dict[str, Any], roots: Path
) -> None:
    with (roots / "data" / "sft" / "train.json").open("a") as file:
        file.write('{"src": "no target"}\n')
    answer = client.post("/jobs", json={"task": "finetune", "config": config})
    assert ("body", "config", "dataset_name_or_path", "train.json", 21) in places(answer)
    assert "21" in answer.text


def test_an_empty_data_set_is_refused(client: httpx.Client, config: dict[str, Any], roots: Path) -> None:
    (roots / "data" / "sft" / "train.json").write_text("")
    answer = client.post("/jobs", json={"task": "finetune", "config": config})
    assert places(answer) == [("body", "config", "dataset_name_or_path")]
    assert "train" in answer.text


def test_all_problems_are_told_at_once(refusing_client: httpx.Client, config: dict[str, Any]) -> None:
    body = {
        "task": "finetune",
        "config": config | {"learing_rate": 1, "model_name_or_path": "nowhere", "max_steps": "many"},
        "priority": "high",
        "labels": {"a b": "c"},
        "colour": "red",
        "webhook": {"url": "http://127.0.0.1/hook"},
    }
    told = places(refusing_client.post("/jobs", json=body))
    expected = {
        ("body", "config", "learing_rate"),
        ("body", "config", "max_steps"),
        ("body", "config", "model_name_or_path"),
        ("body", "priority"),
        ("body", "colour"),
        ("body", "webhook", "url"),
    }
    assert expected <= set(told)
    assert ("body", "labels") in [place[:2] for place in told]


@pytest.mark.parametrize(
    ("members", "place", "text"),
    [
        ({"priority": False}, ("body", "priority"), "got false, expected an integer"),
        ({"priority": 1.5}, ("body", "priority"), "got 1.5, expected an integer"),
        ({"priority": 10**30}, ("body", "priority"), "expected a number <= 1000"),
        ({"max_retries": -1}, ("body", "max_retries"), "expected a number >= 0"),
        ({"timeout_s": 0}, ("body", "timeout_s"), "expected a number > 0"),
        ({"name": ""}, ("body", "name"), "at least 1 character"),
        ({"name": "a\nb"}, ("body", "name"), "expected text that matches"),
        ({"labels": {"team": 3}}, ("body", "labels", "team"), "got 3, expected text"),
        ({"resources": {"nodes": 2000}}, ("body", "resources", "nodes"), "expected a number <= 1024"),
        ({"resources": {"device": "tpu"}}, ("body", "resources", "device"), "expected one of 'cpu' or 'gpu'"),
        ({"resources": {"devices": 1}}, ("body", "resources", "devices"), "unknown field"),
        ({"prioritty": 1}, ("body", "prioritty"), "Did you mean 'priority'?"),
        ({"max_steps": 3}, ("body", "max_steps"), "Move it into config."),
        ({"prioritty": None}, ("body", "prioritty"), "Did you mean 'priority'?"),
        ({"webhook": {}}, ("body", "webhook", "url"), "is missing"),
        ({"task": "sft"}, ("body", "task"), "Did you mean finetune?"),
        ({"task": 7}, ("body", "task"), "got 7, expected text"),
        ({"task": None}, ("body", "task"), "is missing"),
        ({"config": []}, ("body", "config"), "got [], expected an object"),
        ({"config": None}, ("body", "config"), "is missing"),
    ],
)
def test_a_bad_member_of_the_body_is_named(
    refusing_client: httpx.Client,
    config: dict[str, Any],
    members: dict[str, Any],
    place: tuple[str],
    text: str,
) -> None:
    answer = refusing_client.post("/jobs", json={"task": "finetune", "config": config} | members)
    errors = {tuple(error["loc"]): f"{error['msg']} {error['hint']}" for error in answer.json()["errors"]}
    assert answer.status_code == 422
    assert text in errors[place]


@pytest.mark.parametrize(
    ("members", "hint"),
    [
        ({"priority": "3"}, "Send a whole number without quotes, such as 3."),
        ({"max_retries": -1}, "Use for example 0."),
        ({"priority": 2000}, "Use for example 1000."),
        ({"timeout_s": -0.5}, "Send a larger number."),
        ({"name": 7}, "Put it in quotes."),
        ({"resources": {"device": "tpu"}}, "Send one of these words."),
    ],
)
def test_a_bad_member_of_the_body_has_its_remedy(
    refusing_client: httpx.Client, config: dict[str, Any], members: dict[str, Any], hint: str
) -> None:
    answer = refusing_client.post("/jobs", json={"task": "finetune", "config": config} | members)
    assert [error["hint"] for error in answer.json()["errors"]] == [hint]


@pytest.mark.parametrize("more", [{}, {"task": "finetune", "name": "first"}])
def test_an_argument_file_in_place_of_a_job_is_one_problem(
    refusing_client: httpx.Client, config: dict[str, Any], more: dict[str, Any]
) -> None:
    (error,) = refusing_client.post("/jobs", json=config | more).json()["errors"]
    assert error["loc"] == ["body"]
    assert "expected them inside config" in error["msg"]
    assert error["hint"] == 'Send {"task": "finetune", "config": {...}}.'


def test_null_means_not_set(submit: Submit) -> None:
    job = submit(name=None, resources=None, priority=None, labels=None, timeout_s=None, webhook=None)
    assert (job["name"], job["priority"], job["labels"]) == (None, 0, {})


def test_the_device_of_the_config_and_of_the_resources_must_agree(
    refusing_client: httpx.Client, config: dict[str, Any]
) -> None:
    body = {"task": "finetune", "config": config | {"device": "cpu"}, "resources": {"device": "gpu"}}
    assert ("body", "resources", "device") in places(refusing_client.post("/jobs", json=body))


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b'{"task": "finetune", "config": {"learning_rate": NaN}}', ("body", "config", "learning_rate")),
        (b'{"task": "finetune", "config": {"a": [1, -Infinity]}}', ("body", "config", "a", 1)),
        (b'{"task": "finetune", "config": {"a": 1e999}}', ("body", "config", "a")),
        (b'{"task": "finetune", "config": {"a": ' + b"9" * 5000 + b"}}", ("body", "config", "a")),
        (b'{"task": "finetune", "config": {"a": 1, "a": 2}}', ("body", "config", "a")),
        (b'{"task": "finetune", "task": "finetune", "config": {}}', ("body", "task")),
        (b'{"task": "\\ud800", "config": {}}', ("body", "task")),
        (b'{"task": "finetune", "config": {}, "name": "a\\u0000b"}', ("body", "name")),
        (b"[]", ("body",)),
        (b"null", ("body",)),
        (b'"text"', ("body",)),
    ],
)
def test_json_that_no_job_can_hold_is_refused_with_its_place(
    refusing_client: httpx.Client, body: bytes, place: tuple[str | int]
) -> None:
    assert places(refusing_client.post("/jobs", content=body, headers=JSON)) == [place]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"task": "finetune",', "Line 1, column"),
        (b"", "Line 1, column 1"),
        (b"{'task': 1}", "Line 1, column 2"),
        (b'{"task": "\xff"}', "not UTF-8"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "deeper than 64 levels"),
        (b'{"config": ' + b"[" * 80 + b"]" * 80 + b"}", "deeper than 64 levels"),
    ],
)
def test_a_body_that_is_not_json_is_a_clear_400(
    refusing_client: httpx.Client, body: bytes, text: str
) -> None:
    answer = refusing_client.post("/jobs", content=body, headers=JSON)
    assert answer.status_code == 400, answer.text
    assert text in answer.json()["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {},
    ],
)
def test_another_content_type_is_refused(refusing_client: httpx.Client, headers: dict[str, str]) -> None:
    answer = refusing_client.post("/jobs", content=b"{}", headers=headers)
    assert answer.status_code == 415
    assert answer.json()["type"] == "urn:regatta:problem:unsupported-media-type"


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/vnd.job+json"])
def test_json_under_any_of_its_names_is_read(
    client: httpx.Client, config: dict[str, Any], content_type: str
) -> None:
    body = json.dumps({"task": "finetune", "config": config})
    assert client.post("/jobs", content=body, headers={"content-type": content_type}).status_code == 201


def test_a_ten_megabyte_body_is_refused(client: httpx.Client, settings: Settings) -> None:
    body = json.dumps({"task": "finetune", "config": {"a": "x" * 10_000_000}}).encode()
    answer = client.post("/jobs", content=body, headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["max_bytes"] == settings.max_body_bytes


def test_an_endless_body_is_refused_before_it_ends(client: httpx.Client) -> None:
    sent = 0

    def endless():
        nonlocal sent
        while sent < 10_000_000_000:
            sent += 65536
            yield b" " * 65536

    try:
        answer = client.post("/jobs", content=endless(), headers=JSON)
    except (httpx.WriteError, httpx.ReadError):  # the server had closed the connection while this still wrote
        answer = None
    assert sent < 1_000_000_000
    assert answer is None or answer.status_code == 413
