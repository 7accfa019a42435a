"""`regatta estimate`: what a job will take."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import build_tiny_gemma
from tests.training import PAIRS, write_records


@pytest.fixture(scope="module")
def argument_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("estimate")
    write_records(folder / "data" / "train.json", PAIRS)
    arguments = {
        "model_name_or_path": str(build_tiny_gemma(folder / "model")),
        "dataset_name_or_path": str(folder / "data"),
        "output_dir": str(folder / "output"),
        "do_train": True,
        "per_device_train_batch_size": 4,
        "save_steps": 2,
        "device": "cpu",
    }
    (folder / "sft.json").write_text(json.dumps(arguments))
    return folder / "sft.json"


def estimate(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "160", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "cli", "estimate", "finetune", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_people_get_a_table(argument_file: Path) -> None:
    done = estimate(str(argument_file), "--set", "lora=true")
    assert done.returncode == 0, done.stderr
    rows = {line[:20].strip(): line[20:].strip() for line in done.stdout.splitlines()}
    assert rows["devices"] == "1 cpu"
    assert rows["runtime"] == "340 MiB"
    assert rows["optimizer steps"] == "5"
    assert rows["checkpoints"] == "3 written, 3 kept"


def test_programs_get_json(argument_file: Path) -> None:
    done = estimate(str(argument_file), "--json")
    found = json.loads(done.stdout)
    assert found["optimizer_steps"] == 5
    assert found["data"]["train"]["examples"] == len(PAIRS)
    assert found["memory"]["bytes"] == sum(found["memory"]["parts"].values())
    assert found["warnings"] == []


def test_too_little_memory_is_told_with_the_arithmetic(argument_file: Path) -> None:
    done = estimate(str(argument_file), "--memory", "0.25")
    assert done.returncode == 2
    assert "on each cpu device = runtime 340 MiB + " in " ".join(done.stderr.split())


def test_a_file_that_cannot_run_has_no_estimate(argument_file: Path) -> None:
    done = estimate(str(argument_file), "--set", "dataset_name_or_path=nowhere")
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert done.stdout == ""
