"""The BLOOM LoRA and prefix-tuning argument files that ship as presets, run through the whole service, and
what can be done with their results: evaluate and merge.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import trainer
from tests.service import Service
from trainer.config.adapters import LoraSettings
from trainer.peft.lora.adapter import add_lora
from trainer.tools.generate import generate
from trainer.tools.tiny_model import build_tiny_model


@pytest.fixture(scope="module")
def bloom(root: Path) -> Path:
    """A small random BLOOM directory."""
    return build_tiny_model("bloom", root / "tiny-bloom", vocab_size=512, hidden_size=48, num_hidden_layers=2)


def run_preset(service: Service, name: str, model: Path, data: Path) -> dict[str, Any]:
    """The job of an argument file with nothing changed but its paths and lengths."""
    config = service.client.get(f"/presets/bloom/{name}").json()["config"]
    paths = {"model_name_or_path": str(model), "dataset_name_or_path": str(data)}
    lengths = {"src_length": 64, "max_length": 128}
    return service.wait(service.submit(config | paths | lengths)["id"])


def download(service: Service, job: dict[str, Any], directory: Path) -> Path:
    directory.mkdir()
    for file in service.client.get(f"/jobs/{job['id']}/result").json()["files"]:
        content = service.client.get(f"/jobs/{job['id']}/result/files/{file['path']}").content
        (directory / file["path"]).write_bytes(content)
    return directory


def result_metrics(service: Service, job: dict[str, Any]) -> dict[str, Any]:
    return service.client.get(f"/jobs/{job['id']}/result").json()["metrics"]


@pytest.fixture(scope="module", params=["lora", "pt"])
def tuned(
    request: pytest.FixtureRequest, service: Service, bloom: Path, data: Path
) -> tuple[str, dict[str, Any]]:
    """Name of the argument file, and its finished job."""
    return request.param, run_preset(service, request.param, bloom, data)


def test_the_argument_file_succeeds_and_its_result_is_an_adapter(
    service: Service, tuned: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    name, job = tuned
    assert job["progress"]["epoch"] == 3.0
    metrics = result_metrics(service, job)
    assert 0 < metrics["trainable_parameters"] < metrics["parameters"]
    folder = download(service, job, tmp_path / "adapter")
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert settings["peft_type"] == {"lora": "LORA", "pt": "PREFIX_TUNING"}[name]
    assert not (folder / "model.safetensors").exists()
    model, tokenizer = trainer.load_model(folder), trainer.load_tokenizer(folder)
    assert len(generate(model, tokenizer, ["Which boat lies at berth 3?"], max_new_tokens=4)) == 1


def test_its_result_can_be_evaluated(
    service: Service, tuned: tuple[str, dict[str, Any]], root: Path, data: Path
) -> None:
    name, trained = tuned
    folder = download(service, trained, root / f"{name}-adapter")
    config = {"model_name_or_path": str(folder), "dataset_name_or_path": str(data), "output_dir": "./found"}
    config |= {"src_length": 64, "max_length": 128}
    job = service.wait(service.submit(config, task="evaluate")["id"])
    (measured,) = service.pages(f"/jobs/{job['id']}/metrics", kind="eval")
    expected = result_metrics(service, trained)
    assert measured["values"]["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-5)
    assert result_metrics(service, job)["eval_accuracy"] == pytest.approx(expected["eval_accuracy"])
    names = {file["path"] for file in service.client.get(f"/jobs/{job['id']}/result").json()["files"]}
    assert "eval_results.json" in names


def test_a_lora_result_can_be_merged(
    service: Service, bloom: Path, data: Path, root: Path, tmp_path: Path
) -> None:
    trained = run_preset(service, "lora", bloom, data)
    folder = download(service, trained, root / "to-merge")
    job = service.wait(service.submit({"lora_path": str(folder), "output_dir": "out"}, task="merge")["id"])
    metrics = result_metrics(service, job)
    assert metrics["changed"] == 8
    assert job["progress"]["step"] == metrics["tensors"]
    merged = trainer.load_model(download(service, job, tmp_path / "merged"))
    adapted = trainer.load_model(folder)
    tokenizer = trainer.load_tokenizer(tmp_path / "merged")
    prompts = [f"Which boat lies at berth {number}?" for number in (3, 11)]
    assert generate(merged, tokenizer, prompts, 12) == generate(adapted, tokenizer, prompts, 12)


def test_an_adapter_whose_base_is_outside_the_roots_is_refused(
    service: Service, root: Path, tmp_path: Path
) -> None:
    outside = build_tiny_model("bloom", tmp_path / "outside", hidden_size=48, num_hidden_layers=2)
    model = trainer.load_model(outside)
    add_lora(model, LoraSettings(2, 4, base=str(outside)))
    trainer.save_model(model, root / "strange")
    config = {"lora_path": str(root / "strange"), "output_dir": "out"}
    answer = service.client.post("/jobs", json={"task": "merge", "config": config})
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert problem["loc"] == ["body", "config", "model_name_or_path"]
    assert "outside the allowed model folders" in problem["msg"]
