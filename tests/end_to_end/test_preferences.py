"""The dpo and kto argument files that ship as presets, run through the whole service with both families."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service import Service, running_service
from trainer.tools.tiny_model import build_tiny_model

PRESETS = ("dpo", "dpo_lora", "kto", "kto_lora")
FAMILIES = ("gemma", "bloom")
STEPS = 3
SIDES = {"rewards/chosen", "rewards/rejected"}
# Metrics that only a comparison of two responses has, or only judged single responses.
OWN_METRICS = {"dpo": {"rewards/accuracies", "rewards/margins"}, "kto": {"kl"}}


def pair(number: int) -> dict[str, Any]:
    """A question with a right and a wrong answer."""
    right, wrong = f"Berth {number} is free.", f"I do not know about berth {number}."
    return {"src": [f"Is berth {number} free?"], "tgt": [], "response": [wrong, right], "sort": [0, 1]}


def judged(number: int) -> dict[str, Any]:
    """The same with one of the answers, right ones and wrong ones in turn."""
    record = pair(number)
    return record | {"response": [record["response"][number % 2]], "sort": [number % 2]}


def write_split(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


@pytest.fixture(scope="module")
def service(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that runs two of the jobs at a time."""
    with running_service(tmp_path_factory.mktemp("service"), root, devices="cpu:2") as up:
        yield up


@pytest.fixture(scope="module")
def preferences(root: Path) -> Path:
    """Folders dpo and kto with train.jsonl and dev.jsonl."""
    folder = root / "preferences"
    for task, record in (("dpo", pair), ("kto", judged)):
        (folder / task).mkdir(parents=True)
        write_split(folder / task / "train.jsonl", [record(number) for number in range(24)])
        write_split(folder / task / "dev.jsonl", [record(number) for number in range(24, 30)])
    return folder


@pytest.fixture(scope="module")
def models(root: Path) -> dict[str, Path]:
    """A small random model of each family."""
    sizes: dict[str, Any] = {"vocab_size": 512, "hidden_size": 48, "num_hidden_layers": 2}
    return {family: build_tiny_model(family, root / f"tiny-{family}", **sizes) for family in FAMILIES}


def arguments(service: Service, name: str, model: Path, preferences: Path) -> dict[str, Any]:
    """An argument file with nothing changed but its paths, lengths, intervals and the device count."""
    config = service.client.get(f"/presets/gemma/{name}").json()["config"]
    data = preferences / name.removesuffix("_lora")
    paths = {
        "model_name_or_path": str(model),
        "train_dataset_path": str(data / "train.jsonl"),
        "dev_dataset_path": str(data / "dev.jsonl"),
    }
    lengths = {"max_seq_len": 64, "max_prompt_len": 32, "max_steps": STEPS, "warmup_steps": 1}
    intervals = {"logging_steps": 1, "eval_steps": STEPS, "save_steps": STEPS}
    return config | paths | lengths | intervals | {"tensor_parallel_degree": 1}


@pytest.fixture(scope="module")
def jobs(
    service: Service, models: dict[str, Path], preferences: Path
) -> dict[tuple[str, str], dict[str, Any]]:
    """The submitted jobs of all argument files, by family and name."""
    return {
        (family, name): service.submit(
            arguments(service, name, models[family], preferences), task=name.removesuffix("_lora")
        )
        for family in FAMILIES
        for name in PRESETS
    }


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_argument_file_succeeds_and_all_it_made_is_served(
    service: Service, jobs: dict[tuple[str, str], dict[str, Any]], family: str, name: str
) -> None:
    job = service.wait(jobs[family, name]["id"])
    assert job["progress"]["step"] == job["progress"]["total_steps"] == STEPS
    of_task = OWN_METRICS[name.removesuffix("_lora")]

    history = service.pages(f"/jobs/{job['id']}/metrics", kind="train")
    assert [metric["step"] for metric in history] == [1, 2, 3]
    assert all(of_task | {"loss"} <= metric["values"].keys() for metric in history)
    assert any(metric["values"].keys() >= SIDES for metric in history)

    result = service.client.get(f"/jobs/{job['id']}/result").json()
    assert "train_loss" in result["metrics"]
    if job["config"].get("do_eval"):
        (measured,) = service.pages(f"/jobs/{job['id']}/metrics", kind="eval")
        expected = {f"eval_{metric}" for metric in of_task | SIDES | {"loss"}}
        assert expected <= measured["values"].keys()
        assert expected <= result["metrics"].keys()
    checkpoints = service.pages(f"/jobs/{job['id']}/checkpoints")
    assert [checkpoint["step"] for checkpoint in checkpoints] == [STEPS]

    files = {file["path"] for file in result["files"]}
    assert ("adapter_config.json" in files) == name.endswith("_lora")
    assert ("model.safetensors" in files) != name.endswith("_lora")


def test_a_broken_record_is_told_with_its_file_and_line_before_anything_runs(
    service: Service, models: dict[str, Path], preferences: Path
) -> None:
    broken = preferences / "broken.jsonl"
    write_split(broken, [pair(0), pair(1) | {"sort": [1, 1]}])
    config = arguments(service, "dpo", models["gemma"], preferences) | {"train_dataset_path": str(broken)}
    answer = service.client.post("/jobs/validate", json={"task": "dpo", "config": config})
    assert answer.status_code == 422
    summary, found = answer.json()["errors"]
    assert summary["loc"] == ["body", "config", "train_dataset_path"]
    assert "1 of 2 lines" in summary["msg"]
    assert found["loc"] == ["body", "config", "train_dataset_path", "broken.jsonl", 2]
    assert found["msg"].startswith("line 2: sort: got [1, 1]")
