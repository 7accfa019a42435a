"""Jobs that run again with changes, are cloned, and are changed while they wait."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from store.checkpoints import list_checkpoints
from store.database import Database
from store.reasons import Reason
from store.settings import Settings
from store.states import Status
from tests.api.parts import Job, places

Submit = Callable[..., dict[str, Any]]


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, database_url: str) -> str:
    """Both databases."""
    if request.param == "sqlite":
        return database_url
    return request.getfixturevalue("postgres")(request.getfixturevalue("migrated_postgres"))


@pytest.fixture
def failed(job: Job, roots: Path) -> Job:
    """A job that has failed after its first checkpoint."""
    job.start()
    job.publish("checkpoint-2", roots / "models" / "gemma", step=2, path="out/checkpoint-2")
    job.finish(Status.failed, Reason.out_of_memory)
    return job


def events(client: httpx.Client, job_id: str) -> list[dict[str, Any]]:
    return client.get(f"/jobs/{job_id}/events").json()["items"]


def test_a_retry_without_a_body_changes_nothing(client: httpx.Client, failed: Job) -> None:
    before = client.get(failed.path).json()
    after = client.post(f"{failed.path}/retry").json()
    assert (after["status"], after["attempt"]) == ("queued", 2)
    assert after["resolved_config"] == before["resolved_config"]


def test_a_retry_takes_changes_and_tells_them(client: httpx.Client, failed: Job) -> None:
    body = {"config": {"learning_rate": 1e-4, "max_steps": 8}, "max_retries": 2, "timeout_s": 60}
    answer = client.post(f"{failed.path}/retry", json=body)
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert (job["resolved_config"]["learning_rate"], job["max_retries"], job["timeout_s"]) == (1e-4, 2, 60)
    assert job["config"]["max_steps"] == 8
    event = events(client, failed.id)[-1]
    assert event["actor"] == "local"
    changed = event["data"]["changed"]
    assert changed["config"] == {"learning_rate": [3e-05, 1e-4], "max_steps": [4, 8]}
    assert changed["timeout_s"] == [None, 60]


def test_what_a_checkpoint_belongs_to_cannot_change_but_from_scratch(
    client: httpx.Client, failed: Job, database: Database
) -> None:
    body: dict[str, Any] = {"config": {"lora": True}}
    refused = client.post(f"{failed.path}/retry", json=body)
    assert ("body", "config", "lora") in places(refused)
    error = next(e for e in refused.json()["errors"] if e["loc"][-1] == "lora")
    assert error["msg"] == "cannot change from False to True while the job goes on from checkpoint-2"
    assert "from_scratch" in error["hint"]
    answer = client.post(f"{failed.path}/retry", json=body | {"from_scratch": True})
    assert answer.status_code == 200, answer.text
    assert answer.json()["resolved_config"]["lora"] is True
    with database.reading() as session:
        assert list_checkpoints(session, failed.id) == []
    assert failed.artifacts.list(f"jobs/{failed.id}/checkpoints") == []


def test_a_retry_is_checked_as_a_whole(client: httpx.Client, failed: Job, job: Job) -> None:
    body = {"config": {"learning_rate": "fast"}, "max_retries": 1000}
    assert places(client.post(f"{failed.path}/retry", json=body)) == [("body", "max_retries")]
    wrong = client.post(f"{failed.path}/retry", json={"config": {"learning_rate": "fast"}})
    assert places(wrong) == [("body", "config", "learning_rate")]
    unknown = client.post(f"{failed.path}/retry", json={"confg": {}})
    assert places(unknown) == [("body", "confg")]
    assert client.get(failed.path).json()["status"] == "failed"


def test_a_job_cannot_come_to_wait_for_itself(
    client: httpx.Client, job: Job, submit: Submit, config: dict
) -> None:
    user = submit(config=config | {"model_name_or_path": f"job:{job.id}"})["id"]
    client.post(f"{job.path}/cancel")
    client.post(f"/jobs/{user}/cancel")
    own = client.post(f"{job.path}/retry", json={"config": {"model_name_or_path": f"job:{job.id}"}})
    assert own.status_code == 422, own.text


def test_only_an_ended_job_is_retried(client: httpx.Client, job: Job) -> None:
    answer = client.post(f"{job.path}/retry", json={"timeout_s": 60})
    assert (answer.status_code, answer.json()["allowed"]) == (409, ["cancel"])


def test_a_clone_is_a_new_job_with_changes(client: httpx.Client, submit: Submit) -> None:
    first = submit(name="one", labels={"team": "a"}, priority=3)
    headers = {"Idempotency-Key": "k"}
    body = {"config": {"learning_rate": 1e-4, "max_steps": None}, "name": "two"}
    answer = client.post(f"/jobs/{first['id']}/clone", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    second = answer.json()
    assert answer.headers["location"] == f"/jobs/{second['id']}" != f"/jobs/{first['id']}"
    assert (second["name"], second["labels"], second["priority"]) == ("two", {"team": "a"}, 3)
    assert second["resolved_config"]["learning_rate"] == 1e-4
    assert second["resolved_config"]["max_steps"] == -1
    again = client.post(f"/jobs/{first['id']}/clone", json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, second["id"])
    plain = client.post(f"/jobs/{first['id']}/clone")
    assert plain.json()["config"] == first["config"]


def test_priority_changes_while_a_job_is_queued_and_the_rest_always(client: httpx.Client, job: Job) -> None:
    answer = client.patch(job.path, json={"priority": 7, "name": "new", "labels": {"team": "a", "x": "1"}})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["priority"], answer.json()["name"]) == (7, "new")
    job.start()
    answer = client.patch(job.path, json={"name": None, "labels": {"x": None}})
    assert (answer.json()["name"], answer.json()["labels"]) == (None, {"team": "a"})
    event = events(client, job.id)[-1]
    assert (event["type"], event["actor"]) == ("changed", "local")
    assert event["data"]["changed"] == {"name": ["new", None], "labels.x": ["1", None]}
    refused = client.patch(job.path, json={"priority": 8, "name": "no"})
    assert refused.status_code == 409
    assert client.get(job.path).json()["name"] is None
    assert places(client.patch(job.path, json={"task": "dpo", "priority": 5000})) == [
        ("body", "priority"),
        ("body", "task"),
    ]


def test_a_job_has_a_bounded_number_of_labels(client: httpx.Client, job: Job) -> None:
    some, more = ({f"{prefix}{n}": "" for n in range(40)} for prefix in "ab")
    assert client.patch(job.path, json={"labels": some}).status_code == 200
    assert places(client.patch(job.path, json={"labels": more})) == [("body", "labels")]
    assert client.get(job.path).json()["labels"] == some


def test_a_queued_job_tells_its_place_and_what_it_waits_for(
    client: httpx.Client, submit: Submit, config: dict
) -> None:
    ids = [submit(priority=priority)["id"] for priority in (0, 0, 5)]
    user = submit(config=config | {"model_name_or_path": f"job:{ids[0]}"})
    assert user["queue"] == {"position": None, "ahead": None, "why": f"waits for job {ids[0]} (queued)"}
    assert user["message"] == user["queue"]["why"]
    listed = {job["id"]: job["queue"] for job in client.get("/jobs").json()["items"]}
    assert [listed[job_id]["position"] for job_id in ids] == [2, 3, 1]
    assert [client.get(f"/jobs/{job_id}").json()["queue"] for job_id in ids] == [listed[i] for i in ids]
    assert client.post(f"/jobs/{ids[1]}/cancel").json()["queue"] is None


def test_a_list_can_leave_the_configs_out(client: httpx.Client, submit: Submit) -> None:
    whole = submit()
    summary = client.get("/jobs", params={"view": "summary"}).json()["items"]
    left_out = {"config", "resolved_config", "estimate", "warnings", "evidence", "webhook"}
    assert summary[0].keys() == whole.keys() - left_out
    assert summary[0]["id"] == whole["id"]
    assert places(client.get("/jobs", params={"view": "long"})) == [("query", "view")]


def test_the_retry_of_a_deleted_input_is_refused(
    client: httpx.Client, failed: Job, submit: Submit, config: dict, settings: Settings
) -> None:
    reference = f"job:{failed.id}/checkpoint-2"
    user = submit(config=config | {"model_name_or_path": reference})["id"]
    used = client.delete(failed.path)
    assert (used.status_code, user in used.json()["detail"]) == (409, True)
    scratch = client.post(f"{failed.path}/retry", json={"from_scratch": True})
    assert scratch.status_code == 409
    client.post(f"/jobs/{user}/cancel")
    assert client.delete(failed.path).status_code == 204
    impossible = client.post(f"/jobs/{user}/retry").json()
    assert "which was deleted; clone it with another input." in impossible["detail"]
    assert impossible["allowed"] == ["delete"]


def test_what_a_job_makes_cannot_change_under_those_that_wait_for_it(
    client: httpx.Client, submit: Submit, config: dict[str, Any]
) -> None:
    adapter = submit(config=config | {"lora": True})["id"]
    merge = {
        "task": "merge",
        "config": {"model_name_or_path": "gemma", "lora_path": f"job:{adapter}", "output_dir": "o"},
    }
    user = client.post("/jobs", json=merge).json()["id"]
    client.post(f"/jobs/{adapter}/cancel")
    assert client.get(f"/jobs/{user}").json()["reason"] == "dependency_failed"
    whole = {"config": {"lora": False}, "from_scratch": True}
    refused = client.post(f"/jobs/{adapter}/retry", json=whole)
    assert places(refused) == [("body", "config", "lora")]
    assert refused.json()["errors"][0]["msg"].endswith(f"its result is for {user}")
    harmless = {"config": {"learning_rate": 1e-4}, "from_scratch": True}
    assert client.post(f"/jobs/{adapter}/retry", json=harmless).status_code == 200
    assert client.get(f"/jobs/{user}").json()["status"] == "queued"


def test_a_retry_without_a_body_looks_at_what_it_uses_again(
    client: httpx.Client, submit: Submit, config: dict[str, Any]
) -> None:
    adapter = submit(config=config | {"lora": True})["id"]
    merge = {
        "task": "merge",
        "config": {"model_name_or_path": "gemma", "lora_path": f"job:{adapter}", "output_dir": "o"},
    }
    user = client.post("/jobs", json=merge).json()["id"]
    client.post(f"/jobs/{user}/cancel")
    client.post(f"/jobs/{adapter}/cancel")
    whole = {"config": {"lora": False}, "from_scratch": True}
    assert client.post(f"/jobs/{adapter}/retry", json=whole).status_code == 200
    assert places(client.post(f"/jobs/{user}/retry")) == [("body", "config", "lora_path")]
