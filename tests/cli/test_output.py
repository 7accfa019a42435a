import json

import pytest
from rich.console import Console

from cli.errors import ApiError, CliError
from cli.output import (
    duration,
    field_name,
    fields_table,
    job_table,
    moment,
    number,
    print_error,
    print_json,
    problem_table,
    seconds_between,
    steps,
)

JOB = {
    "id": "019338a0-0000-7000-8000-000000000001",
    "name": "first [bold]try[/bold] :smile:",
    "task": "finetune",
    "status": "running",
    "progress": {"step": 30, "total_steps": 300, "loss": 1.23456},
    "created_at": "2026-05-04T10:20:30.250Z",
}


def rendered(thing: object) -> str:
    screen = Console(width=160, color_system=None, markup=False, emoji=False)
    with screen.capture() as capture:
        screen.print(thing)
    return capture.get()


def test_a_job_is_one_row_with_its_whole_id_and_its_name_as_it_is() -> None:
    row = rendered(job_table([JOB])).splitlines()[1]
    assert JOB["id"] in row
    assert "first [bold]try[/bold] :smile:" in row
    assert "30/300" in row
    assert "1.235" in row


def test_problems_are_a_table_of_field_problem_and_remedy() -> None:
    problem = {
        "loc": ["config", "learning_rate"],
        "msg": "got -1.0, expected a number >= 0",
        "hint": "Use for example 3e-05.",
    }
    header, row = rendered(problem_table([problem])).splitlines()
    assert header.split() == ["Field", "Problem", "Remedy"]
    assert row.split("  ")[0] == "config.learning_rate"
    assert "got -1.0, expected a number >= 0" in row
    assert "Use for example 3e-05." in row


def test_a_field_is_named_by_its_path() -> None:
    assert field_name(["config", "dataset_name_or_path", "train.json", 7]) == (
        "config.dataset_name_or_path.train.json[7]"
    )
    assert field_name(["body", "config", "seed"]) == "config.seed"
    assert field_name([]) == ""
    assert field_name(None) == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (42, "42s"), (185, "3m 05s"), (7620, "2h 07m"), (None, ""), (-1, "")]
)
def test_durations_are_read_at_a_glance(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_progress_is_steps_of_all_steps_as_far_as_known() -> None:
    assert [steps({}), steps({"step": 3}), steps({"step": 3, "total_steps": 9})] == ["", "3", "3/9"]
    assert [number(None), number(0.000123456), number(2)] == ["", "0.0001235", "2"]


def test_times_of_the_server_are_shown_in_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert moment("2026-05-04T10:20:30.250Z") == "2026-05-04 10:20:30"
    assert moment(None) == ""
    assert seconds_between("2026-05-04T10:20:30Z", "2026-05-04T10:21:00.500Z") == 30.5
    assert seconds_between(None, None) is None


def test_fields_without_a_value_are_left_out() -> None:
    assert rendered(
        fields_table([("Name", None), ("Priority", 0), ("Labels", ""), ("Reason", "placed")])
    ).split() == [
        "Priority",
        "0",
        "Reason",
        "placed",
    ]


def test_json_output_is_the_value_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "[red]Größe" * 40})
    assert json.loads(capsys.readouterr().out) == {"name": "[red]Größe" * 40}


def test_an_error_goes_to_stderr_with_its_problems(capsys: pytest.CaptureFixture[str]) -> None:
    problem = {
        "title": "The request has problems",
        "detail": "1 problem",
        "errors": [{"loc": ["task"], "msg": "no"}],
    }
    print_error(ApiError(422, problem))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "The request has problems\n" in captured.err
    assert "Remedy" in captured.err


def test_what_the_server_refuses_as_wrong_is_exit_status_2_and_the_rest_1() -> None:
    assert [ApiError(status, {}).exit_code for status in (400, 413, 415, 422)] == [2, 2, 2, 2]
    assert [ApiError(status, {}).exit_code for status in (404, 409, 500)] == [1, 1, 1]
    assert CliError("x").exit_code == 1
