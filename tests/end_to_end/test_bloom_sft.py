"""The BLOOM SFT argument file that ships as a preset, run through the whole service; so are its variants."""

from pathlib import Path
from typing import Any

import pytest

from tests.service import Service
from trainer.tools.tiny_model import build_tiny_model


@pytest.fixture(scope="module")
def bloom(root: Path) -> Path:
    """A small random BLOOM directory."""
    return build_tiny_model("bloom", root / "tiny-bloom", vocab_size=512, hidden_size=48, num_hidden_layers=2)


def preset(service: Service, model: Path, data: Path, **changes: Any) -> dict[str, Any]:
    """The argument file with nothing changed but its paths, its lengths and the device count."""
    config = service.client.get("/presets/bloom/sft").json()["config"]
    paths = {"model_name_or_path": str(model), "dataset_name_or_path": str(data)}
    lengths = {"num_train_epochs": 1, "src_length": 64, "max_length": 128}
    return config | paths | lengths | {"tensor_parallel_degree": 1} | changes


def evaluations(service: Service, job: dict[str, Any]) -> list[dict[str, Any]]:
    return [metric["values"] for metric in service.pages(f"/jobs/{job['id']}/metrics", kind="eval")]


def test_the_argument_file_succeeds(service: Service, bloom: Path, data: Path) -> None:
    job = service.wait(service.submit(preset(service, bloom, data))["id"])
    assert job["status"] == "succeeded"
    (evaluation,) = evaluations(service, job)
    assert evaluation.keys() >= {"eval_loss", "eval_accuracy", "eval_ppl"}
    names = {file["path"] for file in service.client.get(f"/jobs/{job['id']}/result").json()["files"]}
    assert {"model.safetensors", "all_results.json"} <= names


def test_packed_with_generation_it_succeeds_and_serves_its_metrics(
    service: Service, bloom: Path, data: Path
) -> None:
    changes = {
        "zero_padding": True,
        "greedy_zero_padding": True,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "eval_with_do_generation": True,
        "metric_for_best_model": "rougel",
        "neftune": True,
    }
    job = service.wait(service.submit(preset(service, bloom, data, **changes))["id"])
    assert job["status"] == "succeeded"
    (evaluation,) = evaluations(service, job)
    assert evaluation.keys() >= {"eval_rouge1", "eval_rouge2", "eval_rougel", "eval_bleu4"}
    trained = service.pages(f"/jobs/{job['id']}/metrics", kind="train")
    assert all(0 <= metric["values"]["padding_share"] < 1 for metric in trained)
