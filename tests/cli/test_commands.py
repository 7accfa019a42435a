"""The command as a user starts it: a process, its output and its exit status."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.cli.scripted_server import answer, serving

HEAVY = (
    "alembic",
    "celery",
    "fastapi",
    "httpx",
    "numpy",
    "paddle",
    "pydantic",
    "redis",
    "sqlalchemy",
    "uvicorn",
)


def regatta(*words: str, url: str = "http://127.0.0.1:9") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"REGATTA_URL": url, "COLUMNS": "160", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "cli", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def served(status: int, body: object, *words: str) -> subprocess.CompletedProcess[str]:
    with serving(answer(status, json.dumps(body).encode())) as server:
        return regatta(*words, url=server.url)


@pytest.fixture
def argument_file(tmp_path: Path) -> Path:
    path = tmp_path / "sft_argument.json"
    path.write_text('{"dataset_name_or_path": "./data"}')
    return path


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['regatta', '--help']\n"
        "from cli.main import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"
    for command in ("up", "submit", "logs", "train", "tiny-model", "demo"):
        assert f" {command} " in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["jobs"],
        ["show", "j"],
        ["logs", "j"],
        ["logs", "-f", "j"],
        ["wait", "j"],
        ["cancel", "j"],
        ["retry", "j"],
        ["download", "j", "d"],
    ],
)
def test_a_server_that_is_away_is_one_sentence_and_exit_status_3(words: list[str]) -> None:
    done = regatta(*words)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("No Regatta server answers at http://127.0.0.1:9 (")
    assert len(done.stderr.splitlines()) == 1


def test_a_refused_job_is_a_table_and_exit_status_2(argument_file: Path) -> None:
    problem = {"loc": ["body", "config", "fp16"], "msg": "got true beside bf16", "hint": "Leave one out."}
    body = {"title": "The request has problems", "detail": "1 problem", "errors": [problem]}
    done = served(422, body, "submit", str(argument_file))
    assert done.returncode == 2
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == "Task: finetune (told from dataset_name_or_path)."
    assert lines[1] == "The request has problems"
    assert lines[2].split() == ["Field", "Problem", "Remedy"]
    assert lines[3].split("  ")[0] == "config.fp16"


def test_submit_prints_the_id_alone_on_stdout(argument_file: Path) -> None:
    warning = {"loc": ["config", "do_train"], "msg": "no do_* flag is set", "hint": "It trains."}
    done = served(201, {"id": "j-1", "status": "queued", "warnings": [warning]}, "submit", str(argument_file))
    assert (done.returncode, done.stdout) == (0, "j-1\n")
    assert "no do_* flag is set" in done.stderr


def test_json_is_the_servers_answer() -> None:
    job = {"id": "j", "task": "finetune", "status": "queued", "config": {"output_dir": "[out]"}}
    done = served(200, job, "show", "j", "--json")
    assert json.loads(done.stdout) == job


@pytest.mark.parametrize(("status", "code"), [("succeeded", 0), ("failed", 1), ("cancelled", 1)])
def test_wait_ends_as_the_job_does(status: str, code: int) -> None:
    done = served(200, {"id": "j", "status": status, "reason": "r", "message": "why"}, "wait", "j")
    assert done.returncode == code
    assert done.stdout == f"Job j {status}: why\n"


def test_log_lines_are_printed_as_they_are() -> None:
    page = {
        "items": [{"line": "[red]step 1[/red] :smile:", "rank": 0}, {"line": "", "rank": 0}],
        "next_cursor": None,
    }
    done = served(200, page, "logs", "j")
    assert done.stdout == "[red]step 1[/red] :smile:\n\n"


def test_train_tells_the_trainer_how_many_processes_where(
    argument_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []
    monkeypatch.setattr("trainer.run.main", lambda words: told.append(words) or 3)
    hosts = ["--nnodes", "2", "--master", "10.0.0.1:4000", "--rank", "1"]
    words = ["--set", "max_steps=1", "--nproc", "2", "--devices", "0,1", *hosts, "--logs", "/logs"]
    done = CliRunner().invoke(app, ["train", "finetune", str(argument_file), *words])
    assert done.exit_code == 3
    assert told == [["finetune", str(argument_file), *words]]


def test_a_tiny_model_of_an_unknown_family_is_refused(tmp_path: Path) -> None:
    done = regatta("tiny-model", "gremlin", str(tmp_path / "model"))
    assert done.returncode == 2
    assert "expected one of: 'gemma'" in done.stderr


def test_a_tiny_model_does_not_overwrite_anything(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = regatta("tiny-model", "gemma", str(tmp_path))
    assert done.returncode == 1
    assert "is not an empty directory" in done.stderr


def test_a_database_that_cannot_be_reached_is_one_sentence() -> None:
    environment = os.environ | {"REGATTA_DATABASE_URL": "postgresql://user:secret@127.0.0.1:9/none"}
    command = [sys.executable, "-m", "cli", "migrate"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("The database cannot be brought up to date: ")
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("part", ["api", "scheduler", "worker", "migrate"])
def test_a_part_of_the_service_says_which_setting_cannot_be(part: str) -> None:
    environment = os.environ | {"REGATTA_BROKER_URL": "http://user:secret@broker", "COLUMNS": "160"}
    command = [sys.executable, "-m", "cli", part]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "REGATTA_BROKER_URL" in done.stderr
    assert "expected redis:// or rediss:// or unix://" in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_told() -> None:
    done = regatta("--version")
    assert done.returncode == 0
    assert done.stdout == f"regatta {version('regatta')}\n"


@pytest.mark.parametrize(
    ("command", "default"),
    [("up", "REGATTA_DATA_DIR or ./regatta-data"), ("api", "REGATTA_API_PORT or 8000")],
)
def test_help_tells_the_defaults_that_settings_have(command: str, default: str) -> None:
    assert default in regatta(command, "--help").stdout
