"""What the commands that run jobs again, change them and post pipelines send, and what they print."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from tests.cli.scripted_server import ScriptedServer, answer, serving

JOB = {"id": "j", "status": "queued", "message": "", "task": "finetune"}
PIPELINE: dict[str, Any] = {
    "id": "p",
    "name": "both",
    "status": "failed",
    "jobs": [
        {
            "step": "sft",
            "id": "j",
            "task": "finetune",
            "status": "failed",
            "progress": {"step": 3},
            "message": "m",
        }
    ],
}


def regatta(
    monkeypatch: pytest.MonkeyPatch, body: object, *words: str, status: int = 200
) -> tuple[int, str, ScriptedServer]:
    """Exit code and output of a command against a server that gives this answer."""
    with serving(answer(status, json.dumps(body).encode())) as server:
        monkeypatch.setenv("REGATTA_URL", server.url)
        done = CliRunner().invoke(app, list(words))
        return done.exit_code, done.output, server


@pytest.mark.parametrize(
    ("words", "path", "sent"),
    [
        (["retry", "j"], "/jobs/j/retry", None),
        (
            ["retry", "j", "--set", "learning_rate=1e-4", "--from-scratch", "--devices", "2"],
            "/jobs/j/retry",
            {"config": {"learning_rate": 1e-4}, "from_scratch": True, "resources": {"devices_per_node": 2}},
        ),
        (
            ["clone", "j", "--set", "max_steps=null", "--name", "n", "--priority", "0"],
            "/jobs/j/clone",
            {"config": {"max_steps": None}, "name": "n", "priority": 0},
        ),
        (
            ["update", "j", "--priority", "5", "--label", "a=b", "--remove-label", "c", "--name", ""],
            "/jobs/j",
            {"priority": 5, "labels": {"a": "b", "c": None}, "name": None},
        ),
    ],
)
def test_changes_are_sent(
    monkeypatch: pytest.MonkeyPatch, words: list[str], path: str, sent: dict[str, Any] | None
) -> None:
    code, output, server = regatta(monkeypatch, JOB, *words)
    assert (code, server.requests[0][0]) == (0, path), output
    assert (json.loads(server.bodies[0]) if server.bodies[0] else None) == sent
    assert "j" in output


def test_a_pipeline_is_posted_once_per_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps({"jobs": [{"id": "sft", "task": "finetune", "config": {}}]}))
    code, output, server = regatta(monkeypatch, PIPELINE, "pipelines", "submit", str(file), "--name", "both")
    assert (code, output.strip()) == (0, "p")
    assert (server.requests[0][0], "idempotency-key" in server.requests[0][1]) == ("/pipelines", True)
    assert json.loads(server.bodies[0])["name"] == "both"


def test_a_pipeline_is_shown_with_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    _, output, _ = regatta(monkeypatch, PIPELINE, "pipelines", "show", "p")
    assert all(word in output for word in ("both", "sft", "finetune", "failed", "3"))


def test_waiting_for_a_pipeline_that_failed_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    code, output, _ = regatta(monkeypatch, PIPELINE, "pipelines", "wait", "p")
    assert code == 1
    assert output.splitlines()[0] == "sft  failed  step 3"


def test_models_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = {
        "name": "google/gemma-2b", "model_type": "gemma", "parameters": 2_506_172_416, "available": "cached",
        "adapter": False, "quantized": False,
    }  # fmt: skip
    _, output, _ = regatta(monkeypatch, {"items": [model], "next_cursor": None}, "models")
    assert "google/gemma-2b" in output
    assert "2.51 B" in output
