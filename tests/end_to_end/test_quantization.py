"""The argument files of quantization as jobs: nothing is changed but paths and lengths."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.test_gemma_sft import download_result
from tests.service import Service
from trainer.tools.tiny_model import build_tiny_model

FAMILIES = ("gemma", "bloom")


@pytest.fixture(scope="module")
def models(root: Path) -> dict[str, Path]:
    """A small random model of each family."""
    return {
        family: build_tiny_model(
            family, root / f"small-{family}", vocab_size=512, hidden_size=64, num_hidden_layers=2
        )
        for family in FAMILIES
    }


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["ptq", "gptq"])
def test_the_argument_file_gives_a_quantized_model_that_generates(
    service: Service, models: dict[str, Path], data: Path, tmp_path: Path, name: str, family: str
) -> None:
    config = service.client.get(f"/presets/bloom/{name}").json()["config"]
    changed = {
        "model_name_or_path": str(models[family]),
        "dataset_name_or_path": str(data),
        "output_dir": "quantized",
        "src_length": 32,
        "max_length": 64,
    }
    job = service.wait(service.submit(config | changed, task="quantize")["id"])
    (result,) = [event for event in service.pages(f"/jobs/{job['id']}/events") if event["type"] == "result"]
    metrics = result["data"]["metrics"]
    assert metrics["quantized_layers"] == {"gemma": 14, "bloom": 8}[family]
    assert metrics["eval_ppl"] == pytest.approx(metrics["eval_ppl_before"], rel=0.05)
    assert metrics["bytes_after"] < metrics["bytes_before"]
    assert service.client.get(f"/jobs/{job['id']}/result").json()["metrics"] == metrics
    before, after = service.pages(f"/jobs/{job['id']}/metrics", kind="eval")
    assert (before["step"], before["values"]["eval_ppl"]) == (0, metrics["eval_ppl_before"])
    assert (after["step"], after["values"]["eval_ppl"]) == (2, metrics["eval_ppl"])

    folder = download_result(service, job["id"], tmp_path / "result")
    report = json.loads((folder / "quantization_report.json").read_text())
    assert report["method"] == name
    assert len(report["layers"]) == metrics["quantized_layers"]
    command = [sys.executable, "-m", "cli", "generate", str(folder), "--prompt", "Which boat?"]
    done = subprocess.run([*command, "--max-new-tokens", "4"], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
