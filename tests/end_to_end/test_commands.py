"""The client's commands against a running service."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import Service, wait_until

TIMEOUT_S = 120.0


class Regatta:
    """The command with REGATTA_URL set."""

    def __init__(self, service: Service) -> None:
        self._environment = os.environ | {"REGATTA_URL": str(service.client.base_url), "COLUMNS": "160"}

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cli", *words]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def json(self, *words: str) -> dict:
        return json.loads(self(*words, "--json").stdout)


@pytest.fixture
def regatta(service: Service) -> Regatta:
    return Regatta(service)


@pytest.fixture
def argument_file(tmp_path: Path, model: Path, data: Path) -> Path:
    config = {
        "model_name_or_path": str(model),
        "dataset_name_or_path": str(data),
        "output_dir": "out",
        "do_train": True,
        "do_eval": True,
        "per_device_train_batch_size": 8,
        "max_steps": 6,
        "logging_steps": 1,
        "evaluation_strategy": "steps",
        "eval_steps": 3,
        "save_strategy": "steps",
        "save_steps": 3,
        "src_length": 64,
        "max_length": 128,
    }
    path = tmp_path / "sft_argument.json"
    path.write_text(json.dumps(config))
    return path


def test_from_an_argument_file_to_a_model_that_generates(
    regatta: Regatta, argument_file: Path, tmp_path: Path
) -> None:
    done = regatta(
        "submit", str(argument_file), "--name", "first [try]", "--label", "team=search", "--follow"
    )
    assert "Task: finetune (told from dataset_name_or_path)." in done.stderr
    assert "succeeded  step 6/6  loss " in done.stderr
    assert done.stdout.endswith(" succeeded: The trainer has finished and its result is kept.\n")

    (row,) = regatta("jobs", "--label", "team=search").stdout.splitlines()[1:]
    job = row.split()[0]
    assert "first [try]" in row
    assert [
        found["id"] for found in regatta.json("jobs", "--name", "first [try]", "--status", "succeeded")
    ] == [job]
    assert "No jobs." in regatta("jobs", "--label", "team=other").stderr

    shown = " ".join(regatta("show", job).stdout.split())
    for words in (
        "Status succeeded",
        "Name first [try]",
        "Labels team=search",
        "checkpoint-3",
        "checkpoint-6",
        "eval_loss",
    ):
        assert words in shown

    lines = regatta("logs", job).stdout.splitlines()
    assert regatta("logs", job, "-f").stdout.splitlines() == lines
    assert regatta("logs", job, "--tail", "2").stdout.splitlines() == lines[-2:]
    assert json.loads(regatta("logs", job, "--tail", "1", "--json").stdout)["line"] == lines[-1]

    regatta("download", job, str(tmp_path / "model"))
    regatta("download", job, "checkpoint-3", str(tmp_path / "checkpoint"))
    assert json.loads((tmp_path / "checkpoint" / "trainer_state.json").read_text())["global_step"] == 3
    told = regatta.json(
        "generate", str(tmp_path / "model"), "--prompt", "Which boat", "--max-new-tokens", "3"
    )
    assert [answer["prompt"] for answer in told] == ["Which boat"]


def test_what_is_wrong_is_a_table_of_everything(regatta: Regatta, argument_file: Path) -> None:
    words = ["--set", "learning_rate=-1", "--set", "model_name_or_path=/nowhere", "--set", "tpyo=1"]
    refused = regatta("submit", str(argument_file), *words, code=2)
    for field in ("config.learning_rate", "config.tpyo"):
        assert any(line.startswith(field) for line in refused.stderr.splitlines()), refused.stderr
    assert refused.stdout == ""
    regatta("submit", str(argument_file), *words, "--check", code=2)


def test_checking_stores_nothing(regatta: Regatta, argument_file: Path) -> None:
    before = regatta("jobs", "--json").stdout
    assert "Valid" in regatta("submit", str(argument_file), "--check").stdout
    assert regatta("jobs", "--json").stdout == before


def test_a_job_is_cancelled_and_retried(service: Service, regatta: Regatta, argument_file: Path) -> None:
    words = ["--set", "max_steps=100000", "--set", "save_steps=100000", "--set", "eval_steps=100000"]
    job = regatta("submit", str(argument_file), *words).stdout.strip()
    service.wait_for(job, lambda state: (state["progress"]["step"] or 0) > 0)
    assert regatta.json("cancel", job)["status"] == "stopping"
    assert "cancelled" in regatta("wait", job, code=1).stdout

    assert regatta.json("retry", job)["attempt"] == 2
    service.wait_for(job, lambda state: state["status"] == "running")
    regatta("cancel", job)
    assert regatta.json("show", job)["status"] in ("stopping", "cancelled")
    wait_until(lambda: service.job(job)["status"] == "cancelled", TIMEOUT_S, lambda: str(service.job(job)))
    assert "only an unfinished job" in regatta("cancel", job, code=1).stderr


def test_an_unknown_job_is_said_to_be_unknown(regatta: Regatta) -> None:
    for words in (["show", "nope"], ["logs", "nope", "-f"], ["wait", "nope"], ["download", "nope", "dir"]):
        assert "There is no job 'nope'" in regatta(*words, code=1).stderr
