"""The devices of a job: what its config needs, what a request may ask for instead, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from store.database import Database
from store.hosts import register_host
from trainer.config import preset

Submit = Callable[..., dict[str, Any]]
NEEDS_FOUR = {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "gradient_accumulation_steps": 2}


def validate(client: httpx.Client, config: dict[str, Any], **members: Any) -> httpx.Response:
    return client.post("/jobs/validate", json={"task": "finetune", "config": config, **members})


def add_host(database: Database, name: str, count: int, device: str = "cpu") -> None:
    devices = [{"index": index} for index in range(count)]
    with database.transaction() as session:
        register_host(session, name, device=device, devices=devices)


@pytest.mark.parametrize(
    ("arguments", "request_", "devices"),
    [
        (NEEDS_FOUR, None, 4),
        (NEEDS_FOUR, {"nodes": 1}, 4),
        (NEEDS_FOUR, {"devices_per_node": 8}, 8),
        ({"sharding": "stage2"}, None, 1),
        ({"sharding": "stage2"}, {"devices_per_node": 3}, 3),
        ({}, {"devices_per_node": 2}, 2),
    ],
)
def test_a_job_gets_what_its_config_needs_or_a_multiple(
    refusing_client: httpx.Client,
    config: dict[str, Any],
    arguments: dict[str, Any],
    request_: dict[str, int] | None,
    devices: int,
) -> None:
    answer = validate(refusing_client, config | arguments, resources=request_)
    assert answer.status_code == 200, answer.text
    assert answer.json()["resources"] == {"nodes": 1, "devices_per_node": devices, "device": "cpu"}


@pytest.mark.parametrize(
    ("devices", "msg", "hint"),
    [
        (
            2,
            "tensor_parallel_degree 2 x pipeline_parallel_degree 2 = 4 devices, more than there are "
            "(2 devices)",
            "Ask for 4 devices, or lower the degrees.",
        ),
        (
            6,
            "tensor_parallel_degree 2 x pipeline_parallel_degree 2 = 4 devices, which does not divide "
            "6 devices",
            "Ask for 4 or 8 devices, or lower the degrees.",
        ),
    ],
)
def test_another_number_of_devices_is_refused_with_the_arithmetic(
    refusing_client: httpx.Client, config: dict[str, Any], devices: int, msg: str, hint: str
) -> None:
    answer = validate(refusing_client, config | NEEDS_FOUR, resources={"devices_per_node": devices})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error == {"loc": ["body", "resources", "devices_per_node"], "msg": msg, "hint": hint}


@pytest.mark.parametrize(
    ("degrees", "resources", "each"),
    [
        ({}, {"nodes": 3}, 1),
        (NEEDS_FOUR, {"nodes": 2}, 2),
        (NEEDS_FOUR, {"nodes": 8, "devices_per_node": 2}, 2),
    ],
)
def test_the_devices_of_all_hosts_count(
    refusing_client: httpx.Client,
    config: dict[str, Any],
    degrees: dict[str, Any],
    resources: dict[str, int],
    each: int,
) -> None:
    answer = validate(refusing_client, config | degrees, resources=resources)
    assert answer.status_code == 200, answer.text
    wanted = {"nodes": resources["nodes"], "devices_per_node": each, "device": "cpu"}
    assert answer.json()["resources"] == wanted


def test_hosts_that_do_not_fit_the_layout_are_refused_with_the_arithmetic(
    refusing_client: httpx.Client, config: dict[str, Any]
) -> None:
    wanted = {"nodes": 3, "devices_per_node": 2}
    (error,) = validate(refusing_client, config | NEEDS_FOUR, resources=wanted).json()["errors"]
    assert error["loc"] == ["body", "resources", "nodes"]
    product = "tensor_parallel_degree 2 x pipeline_parallel_degree 2 = 4 devices"
    assert error["msg"] == f"3 nodes with 2 devices each: {product}, which does not divide 6 devices"


def test_more_devices_than_any_host_may_have_are_refused(
    refusing_client: httpx.Client, config: dict[str, Any]
) -> None:
    degrees = {"sharding": "stage1", "sharding_parallel_degree": 2**62}
    (error,) = validate(refusing_client, config | degrees).json()["errors"]
    assert error["loc"] == ["body", "resources"]
    assert error["msg"].endswith("devices, expected at most 64")


def test_steps_are_counted_for_the_devices_of_the_job(
    refusing_client: httpx.Client, config: dict[str, Any]
) -> None:
    epochs = {"max_steps": -1, "num_train_epochs": 1, "per_device_train_batch_size": 2}
    for devices, steps in ((1, 10), (4, 3)):
        answer = validate(refusing_client, config | epochs, resources={"devices_per_node": devices})
        assert answer.json()["statistics"]["optimizer_steps"] == steps


def test_a_merge_takes_one_device(refusing_client: httpx.Client) -> None:
    body = {
        "task": "merge",
        "config": {"lora_path": "nowhere", "output_dir": "out"},
        "resources": {"devices_per_node": 2},
    }
    errors = refusing_client.post("/jobs/validate", json=body).json()["errors"]
    assert [error["msg"] for error in errors if error["loc"][1] == "resources"] == [
        "task merge on 2 devices, expected 1: nothing of it can be split"
    ]


def test_a_job_that_no_known_host_could_take_is_warned_of(
    client: httpx.Client, database: Database, config: dict[str, Any]
) -> None:
    def warned() -> list[str]:
        warnings = validate(client, config | NEEDS_FOUR).json()["warnings"]
        return [warning["msg"] for warning in warnings if warning["loc"] == ["body", "resources"]]

    assert warned() == []  # there is no host yet, so nothing is known
    add_host(database, "pier", 2)
    assert warned() == ["asks for a host with 4 cpu devices, but the largest that is known has 2"]
    add_host(database, "quay", 4)
    assert warned() == []
    on_gpu = validate(client, config, resources={"device": "gpu"}).json()
    assert "asks for a host with 1 gpu device, but none is known" in [
        warning["msg"] for warning in on_gpu["warnings"]
    ]


@pytest.mark.parametrize(
    ("family", "name", "devices"),
    [("bloom", "sft", 4), ("gemma", "sft", 8), ("gemma", "dpo", 2), ("gemma", "kto", 8)],
)
def test_an_argument_file_of_the_seeds_asks_for_the_devices_of_its_degrees(
    client: httpx.Client, roots: Path, family: str, name: str, devices: int
) -> None:
    shipped = preset(family, name)
    model = roots / "models" / "gemma"
    if family == "bloom":
        sizes = {"model_type": "bloom", "n_head": 4, "n_layer": 1, "hidden_size": 4, "vocab_size": 1}
        (model / "config.json").write_text(json.dumps(sizes))
    lines = [
        {"src": f"question {n}", "response": ["good", "bad"][: 2 if name == "dpo" else 1], "sort": [1, 0]}
        for n in range(4)
    ]
    if name == "kto":
        lines = [line | {"sort": [n % 2]} for n, line in enumerate(lines)]
    file = roots / "data" / "preferences.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    places = {"model_name_or_path": "gemma", "output_dir": "out"}
    if shipped.task == "finetune":
        places["dataset_name_or_path"] = "sft"
    else:
        places |= {"train_dataset_path": str(file), "dev_dataset_path": str(file)}
    answer = client.post("/jobs", json={"task": shipped.task, "config": shipped.config | places})
    assert answer.status_code == 201, answer.text
    assert answer.json()["resources"] == {"nodes": 1, "devices_per_node": devices, "device": "cpu"}
