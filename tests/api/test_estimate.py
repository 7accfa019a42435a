"""What POST /jobs and POST /jobs/validate say about parameters, memory, tokens and steps."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from store.database import Database
from store.hosts import register_host
from tests.service import build_tiny_gemma

GIB = 1 << 30


def add_host(database: Database, name: str, *memory: int, device: str = "cpu") -> None:
    devices = [{"index": index, "memory_bytes": size} for index, size in enumerate(memory)]
    with database.transaction() as session:
        register_host(session, name, device=device, devices=devices)


@pytest.fixture
def body(config: dict[str, Any], roots: Path) -> dict[str, Any]:
    folder = build_tiny_gemma(roots / "models" / "tiny")
    return {"task": "finetune", "config": config | {"model_name_or_path": str(folder)}}


def test_validation_estimates_the_job(client: httpx.Client, body: dict[str, Any]) -> None:
    answer = client.post("/jobs/validate", json=body).json()
    estimate = answer["estimate"]
    assert estimate["parameters"] == estimate["trainable_parameters"] > 0
    assert estimate["memory"]["bytes"] == sum(estimate["memory"]["parts"].values())
    train = estimate["data"]["train"]
    assert train["records"] == answer["statistics"]["train"]["examples"]
    assert 0 < train["label_tokens"] < train["tokens"]
    assert estimate["optimizer_steps"] == answer["statistics"]["optimizer_steps"]
    checkpoints = estimate["checkpoints"]
    assert checkpoints["bytes"] == checkpoints["weights_bytes"] + checkpoints["optimizer_bytes"]
    assert estimate["notes"] == []


def test_a_job_keeps_what_it_was_reckoned_to_take(client: httpx.Client, body: dict[str, Any]) -> None:
    made = client.post("/jobs", json=body).json()
    assert made["estimate"]["memory"]["bytes"] == sum(made["estimate"]["memory"]["parts"].values()) > 0
    assert client.get(f"/jobs/{made['id']}").json()["estimate"] == made["estimate"]


def test_a_job_that_is_too_large_is_refused_with_the_arithmetic(
    client: httpx.Client, database: Database, body: dict[str, Any]
) -> None:
    add_host(database, "pier", GIB // 4)
    for path in ("/jobs", "/jobs/validate"):
        answer = client.post(path, json=body)
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert error["loc"] == ["body", "resources"]
        assert "on each cpu device = runtime 340 MiB + " in error["msg"]
        assert error["msg"].endswith("and the largest that is known has 256 MiB")
        assert "set force to true" in error["hint"]


def test_force_makes_it_a_warning(client: httpx.Client, database: Database, body: dict[str, Any]) -> None:
    add_host(database, "pier", GIB // 4)
    answer = client.post("/jobs", json=body | {"force": True})
    assert answer.status_code == 201, answer.text
    assert ["body", "resources"] in [warning["loc"] for warning in answer.json()["warnings"]]


def test_it_is_measured_by_the_largest_host_that_has_enough_devices(
    client: httpx.Client, database: Database, body: dict[str, Any]
) -> None:
    add_host(database, "pier", GIB // 4)
    add_host(database, "quay", 8 * GIB)
    assert client.post("/jobs", json=body).status_code == 201
    two = body | {"resources": {"devices_per_node": 2}}
    assert client.post("/jobs/validate", json=two).status_code == 200  # no host has two: it may still join
    add_host(database, "jetty", 8 * GIB, GIB // 4)
    assert client.post("/jobs/validate", json=two).status_code == 422


def test_a_host_that_does_not_tell_its_memory_may_have_enough(
    client: httpx.Client, database: Database, body: dict[str, Any]
) -> None:
    add_host(database, "pier", GIB // 4)
    with database.transaction() as session:
        register_host(session, "old", device="cpu", devices=[{"index": 0}])
    assert client.post("/jobs", json=body).status_code == 201


def test_what_is_not_known_is_null_and_said(client: httpx.Client, config: dict[str, Any]) -> None:
    """The model `gemma` of these tests has no usable tokenizer, and a config.json without sizes."""
    answer = client.post("/jobs/validate", json={"task": "finetune", "config": config})
    estimate = answer.json()["estimate"]
    assert estimate["parameters"] == 8_537_680_896  # those of the 7b, which are the family's defaults
    assert estimate["data"] is estimate["run_tokens"] is None
    assert any("the tokens cannot be counted" in note for note in estimate["notes"])


def test_much_padding_is_told(client: httpx.Client, body: dict[str, Any], roots: Path) -> None:
    lines = ['{"src": "a", "tgt": "b"}\n'] * 9 + ['{"src": "a", "tgt": "' + "long " * 60 + '"}\n']
    folder = roots / "data" / "uneven"
    folder.mkdir(parents=True)
    (folder / "train.json").write_text("".join(lines))
    uneven = {"dataset_name_or_path": str(folder), "per_device_train_batch_size": 10, "do_eval": False}
    config = {name: value for name, value in body["config"].items() if "eval" not in name}
    answer = client.post("/jobs/validate", json=body | {"config": config | uneven}).json()
    (warning,) = [found for found in answer["warnings"] if found["loc"][-1] == "zero_padding"]
    assert "of a batch is padding" in warning["msg"]
