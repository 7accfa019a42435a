"""The Gemma SFT argument file that ships as a preset, run through the whole service."""

import hashlib
import io
import json
import math
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.service import Service

SHARED_DATA = Path(__file__).parents[3] / "shared" / "data" / "sft"
ORACLE = os.environ.get("REGATTA_ORACLE_PYTHON")


def preset(service: Service, model: Path, data: Path, **changes: object) -> dict:
    """The argument file with nothing changed but its paths, its length and the device count."""
    config = service.client.get("/presets/gemma/sft").json()["config"]
    paths = {"model_name_or_path": str(model), "dataset_name_or_path": str(data)}
    return config | paths | {"sharding_parallel_degree": 1} | changes


@pytest.fixture(scope="module")
def job(service: Service, model: Path, data: Path) -> dict:
    submitted = service.submit(preset(service, model, data, num_train_epochs=2), name="berths")
    return service.wait(submitted["id"])


def test_the_job_passes_through_the_states_in_order(service: Service, job: dict) -> None:
    events = service.pages(f"/jobs/{job['id']}/events")
    states = [event["to_status"] for event in events if event.get("to_status")]
    assert states == ["queued", "starting", "running", "succeeded"]
    assert job["progress"]["step"] == job["progress"]["total_steps"] == 48
    assert job["config"]["fp16"] is True
    assert job["attempt"] == 1


def test_half_precision_on_a_cpu_is_reported(service: Service, job: dict) -> None:
    warnings = [event for event in service.pages(f"/jobs/{job['id']}/events") if event["type"] == "warning"]
    assert any("fp16" in str(event) for event in warnings)


def test_the_loss_curve_is_served_and_falls(service: Service, job: dict) -> None:
    metrics = service.pages(f"/jobs/{job['id']}/metrics", kind="train")
    assert [metric["step"] for metric in metrics] == list(range(1, 49))
    losses = [metric["values"]["loss"] for metric in metrics]
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-8:]) < 0.98 * sum(losses[:8])
    evals = service.pages(f"/jobs/{job['id']}/metrics", kind="eval")
    assert [metric["step"] for metric in evals] == [24, 48]
    assert all(0 <= metric["values"]["eval_accuracy"] <= 1 for metric in evals)


def test_checkpoints_download_byte_for_byte(service: Service, job: dict, tmp_path: Path) -> None:
    listed = service.pages(f"/jobs/{job['id']}/checkpoints")
    assert listed, "save_strategy epoch leaves at least the newest checkpoint"
    for checkpoint in listed:
        archive = service.client.get(f"/jobs/{job['id']}/checkpoints/{checkpoint['name']}/archive").content
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(tmp_path / checkpoint["name"], filter="data")
        for file in checkpoint["files"]:
            (found,) = (tmp_path / checkpoint["name"]).rglob(file["path"])
            assert hashlib.sha256(found.read_bytes()).hexdigest() == file["sha256"]


def download_result(service: Service, job_id: str, directory: Path) -> Path:
    for file in service.client.get(f"/jobs/{job_id}/result").json()["files"]:
        target = directory / file["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(service.client.get(f"/jobs/{job_id}/result/files/{file['path']}").content)
    return directory


def test_the_result_is_a_model_that_loads_again(service: Service, job: dict, tmp_path: Path) -> None:
    import trainer

    directory = download_result(service, job["id"], tmp_path / "result")
    model, tokenizer = trainer.load_model(directory), trainer.load_tokenizer(directory)
    assert (
        model.config.num_hidden_layers
        == json.loads((directory / "config.json").read_text())["num_hidden_layers"]
    )
    assert tokenizer.decode(tokenizer.encode("Which boat lies at berth 3?")) == "Which boat lies at berth 3?"


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLE, reason="REGATTA_ORACLE_PYTHON names no interpreter with transformers")
def test_the_result_and_its_checkpoints_load_in_transformers(
    service: Service, job: dict, tmp_path: Path
) -> None:
    directory = download_result(service, job["id"], tmp_path / "result")
    code = (
        "import sys, transformers as t\n"
        "m, info = t.AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)\n"
        "assert not info['missing_keys'] and not info['unexpected_keys'], info\n"
        "k = t.AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "ids = k('Which boat lies at berth 3?', return_tensors='pt')\n"
        "answer = m.generate(**ids, max_new_tokens=12, do_sample=False)[0]\n"
        "print(k.decode(answer, skip_special_tokens=True))\n"
    )
    done = subprocess.run(
        [str(ORACLE), "-c", code, str(directory)], capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Which boat lies at berth 3?" in done.stdout


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="needs the shared data beside the checkout")
def test_the_argument_file_runs_on_real_instructions(service: Service, model: Path, root: Path) -> None:
    data = root / "instructions"
    data.symlink_to(SHARED_DATA)
    refused = service.client.post(
        "/jobs", json={"task": "finetune", "config": preset(service, model, data, max_steps=4)}
    )
    assert refused.status_code == 422, "a link out of the allowed roots is not followed"
    data.unlink()
    data.mkdir()
    for name in ("train.json", "dev.json"):
        (data / name).write_bytes((SHARED_DATA / name).read_bytes())
    job = service.submit(preset(service, model, data, max_steps=4))
    assert service.wait(job["id"])["progress"]["step"] == 4
