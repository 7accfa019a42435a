"""Presets, schemas and hosts."""

import httpx
import pytest

from store.database import Database
from store.hosts import register_host
from store.reasons import Reason
from tests.api.parts import Job


def test_every_preset_that_is_listed_can_be_shown(refusing_client: httpx.Client) -> None:
    page = refusing_client.get("/presets").json()
    assert len(page["items"]) == 10
    assert page["next_cursor"] is None
    for item in page["items"]:
        shown = refusing_client.get(item["links"]["self"]).json()
        assert shown["config"]["model_name_or_path"]
        assert {name: shown[name] for name in item} == item


def test_presets_say_that_this_version_can_run_them(refusing_client: httpx.Client) -> None:
    available = {
        (item["task"], item["available"]) for item in refusing_client.get("/presets").json()["items"]
    }
    assert available == {("finetune", True), ("dpo", True), ("kto", True), ("quantize", True)}


@pytest.mark.parametrize(
    ("path", "devices"),
    [("gemma/sft", 8), ("gemma/dpo", 2), ("bloom/sft", 4), ("bloom/lora", 1), ("bloom/ptq", 1)],
)
def test_a_preset_tells_how_many_devices_it_needs(
    refusing_client: httpx.Client, path: str, devices: int
) -> None:
    preset = refusing_client.get(f"/presets/{path}").json()
    assert (preset["devices"], preset["problems"]) == (devices, [])


@pytest.mark.parametrize("path", ["gemma/sftt", "gemm/sft", "..%2f..", "gemma/%00", "gemma/..%2fsft"])
def test_an_unknown_preset_is_a_404(refusing_client: httpx.Client, path: str) -> None:
    assert refusing_client.get(f"/presets/{path}").status_code == 404


def test_the_nearest_preset_is_offered(refusing_client: httpx.Client) -> None:
    assert "Did you mean 'gemma/sft'?" in refusing_client.get("/presets/gemma/sftt").json()["detail"]


def test_the_schema_of_a_task_knows_its_arguments(refusing_client: httpx.Client) -> None:
    schema = refusing_client.get("/schemas/finetune").json()
    assert {"learning_rate", "model_name_or_path", "save_steps"} <= schema["properties"].keys()


@pytest.mark.parametrize("task", ["finetun", "..%2f"])
def test_a_task_without_a_schema_is_a_404(refusing_client: httpx.Client, task: str) -> None:
    answer = refusing_client.get(f"/schemas/{task}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_hosts_show_their_devices_and_what_they_run(
    client: httpx.Client, database: Database, job: Job
) -> None:
    job.start()
    with database.transaction() as session:
        register_host(session, "quay", device="gpu", devices=[{"index": 0}, {"index": 1}])
    pier, quay = client.get("/hosts").json()["items"]
    assert (pier["name"], pier["device"], pier["alive"]) == ("pier", "cpu", True)
    assert pier["running"] == [{"job_id": job.id, "attempt": 1, "rank": 0, "devices": [0]}]
    assert (quay["name"], len(quay["devices"]), quay["running"]) == ("quay", 2, [])


def test_a_job_that_names_no_device_gets_a_gpu_where_there_is_one(
    client: httpx.Client, database: Database, config: dict
) -> None:
    with database.transaction() as session:
        register_host(session, "quay", device="gpu", devices=[{"index": 0}])
    body = {"task": "finetune", "config": config}
    assert client.post("/jobs", json=body).json()["resources"]["device"] == "gpu"
    body["config"] = config | {"device": "cpu"}
    assert client.post("/jobs", json=body).json()["resources"]["device"] == "cpu"


def test_every_reason_is_explained(refusing_client: httpx.Client) -> None:
    reasons = {row["reason"]: row for row in refusing_client.get("/reasons").json()["items"]}
    assert set(reasons) == set(Reason)
    memory = reasons["out_of_memory"]
    assert (memory["fault"], memory["retry"], memory["retry_helps"]) == ("user", "never", False)
    assert "per_device_train_batch_size" in memory["remedy"]
