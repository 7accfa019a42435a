import json
import math
from pathlib import Path

import pytest

from tests.training import Recorder, read_events
from trainer.config import Problem
from trainer.events import EventWriter, finite


def test_each_event_is_one_line_of_json_with_a_time(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = EventWriter(path)
    writer.write("metric", step=1, loss=0.5)
    writer.write("progress", step=1, note="zwei\nZeilen")
    first, second = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(first) == {
        "t": pytest.approx(json.loads(first)["t"]),
        "type": "metric",
        "step": 1,
        "loss": 0.5,
    }
    assert json.loads(second)["note"] == "zwei\nZeilen"
    assert json.loads(first)["t"] <= json.loads(second)["t"]


def test_a_later_process_appends(tmp_path: Path) -> None:
    for step in (1, 2):
        writer = EventWriter(tmp_path / "events.jsonl")
        writer.write("metric", step=step)
        writer.close()
    assert [event["step"] for event in read_events(tmp_path / "events.jsonl")] == [1, 2]


def test_numbers_that_are_not_finite_become_null_and_a_warning_names_them() -> None:
    recorder = Recorder()
    recorder.writer.write("metric", step=3, loss=math.nan, inner={"ppl": math.inf, "ok": 1.0})
    metric, *warnings = recorder.events
    assert (metric["loss"], metric["inner"]) == (None, {"ppl": None, "ok": 1.0})
    assert [warning["loc"] for warning in warnings] == [["metric", "loss"], ["metric", "inner.ppl"]]
    assert all(warning["type"] == "warning" for warning in warnings)


def test_a_warning_and_an_error_carry_their_problems() -> None:
    recorder = Recorder()
    problem = Problem(("learning_rate",), "got -1, expected more", "Use 1e-5.")
    recorder.writer.warn(problem)
    recorder.writer.fail("config", "It cannot be.", [problem])
    warning, error = recorder.events
    assert warning.items() >= problem.as_dict().items()
    assert (error["type"], error["kind"], error["msg"]) == ("error", "config", "It cannot be.")
    assert error["problems"] == [problem.as_dict()]


def test_the_file_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_EVENTS", str(tmp_path / "events.jsonl"))
    EventWriter.from_environment().write("progress", step=0)
    assert len(read_events(tmp_path / "events.jsonl")) == 1
    monkeypatch.delenv("REGATTA_EVENTS")
    EventWriter.from_environment().write("progress", step=0)
    assert len(read_events(tmp_path / "events.jsonl")) == 1


def test_finite_goes_through_lists_and_leaves_everything_else() -> None:
    assert finite([1.0, math.inf, {"a": (math.nan, "x", None, 2)}]) == [
        1.0,
        None,
        {"a": [None, "x", None, 2]},
    ]
