"""`regatta metrics`, `regatta plot` and `regatta presets` against a server that gives fixed answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from cli.plot import step_plot
from tests.cli.scripted_server import ScriptedServer, answer, serving, stream

METRICS: list[dict[str, Any]] = [
    {"id": n, "kind": "train", "step": n, "attempt": 1, "values": {"loss": 4.0 / n, "learning_rate": 3e-05}}
    for n in (1, 2, 4)
]
NOT_FINITE: dict[str, Any] = {"id": 9, "kind": "train", "step": 5, "attempt": 1, "values": {"loss": None}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    body = json.dumps({"items": [*METRICS, NOT_FINITE], "next_cursor": None})
    with serving(answer(200, body.encode())) as server:
        monkeypatch.setenv("REGATTA_URL", server.url)
        yield server


def regatta(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.mark.usefixtures("server")
def test_metrics_are_a_row_for_each_step() -> None:
    lines = regatta("metrics", "j").output.splitlines()
    assert lines[0].split() == ["step", "loss", "learning_rate"]
    assert [line.split() for line in lines[1:3]] == [["1", "4", "3e-05"], ["2", "2", "3e-05"]]


def test_metrics_as_json_are_the_servers_objects(server: ScriptedServer) -> None:
    lines = regatta("metrics", "j", "--kind", "eval", "--json").output.splitlines()
    assert [json.loads(line) for line in lines] == [*METRICS, NOT_FINITE]
    assert "kind=eval" in server.requests[0][0]


@pytest.mark.usefixtures("server")
def test_a_plot_says_what_it_shows_and_leaves_out_what_is_not_finite() -> None:
    assert regatta("plot", "j", "--height", "4").output.splitlines() == [
        "loss: 1 at step 4, lowest 1 at step 4",
        "   4.000 | *",
        "   3.000 |",
        "   2.000 |  *",
        "   1.000 |   *",
        "    step   1 4",
    ]
    assert json.loads(regatta("plot", "j", "--json").output)[-1] == {"step": 4, "value": 1.0}


@pytest.mark.usefixtures("server")
def test_a_number_that_the_job_has_not_is_refused_with_those_that_it_has() -> None:
    done = regatta("plot", "j", "--metric", "los")
    assert done.exit_code == 2
    assert "--metric los: the job has loss, learning_rate." in done.output


def test_a_plot_that_is_followed_ends_with_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    events = "".join(f"event: metric\nid: {m['id']}\ndata: {json.dumps(m)}\n\n" for m in METRICS)
    last = 'event: end\ndata: {"status": "succeeded"}\n\n'
    with serving(answer(200, b"{}"), stream(f"{events}{last}".encode())) as server:
        monkeypatch.setenv("REGATTA_URL", server.url)
        done = regatta("plot", "-f", "j")
    assert done.exit_code == 0
    assert "loss: 1 at step 4" in done.output
    assert done.output.count("step") == 3


def test_small_numbers_keep_their_digits() -> None:
    assert step_plot({1: 3e-05, 2: 1e-05}, "learning_rate", height=2).splitlines()[1:3] == [
        " 3.0e-05 | *",
        " 1.0e-05 |  *",
    ]


def test_a_preset_is_printed_alone_and_what_to_change_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = {"loc": ["config", "do_eval"], "msg": "needs dev data", "hint": "Leave it out."}
    preset = {"family": "gemma", "name": "lora", "config": {"lora": True}, "problems": [problem]}
    with serving(answer(200, json.dumps(preset).encode())) as server:
        monkeypatch.setenv("REGATTA_URL", server.url)
        done = regatta("presets", "show", "gemma/lora")
        assert regatta("presets", "show", "gemma").exit_code == 2
    assert server.requests[0][0] == "/presets/gemma/lora"
    assert json.loads(done.stdout) == {"lora": True}
    assert "needs dev data" in done.stderr
