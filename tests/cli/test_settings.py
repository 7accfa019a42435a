"""Settings that cannot be are said in a table, by the name that the operator gave them."""

from pathlib import Path

import pytest

from cli.errors import INVALID, CliError
from cli.settings import check_devices, read_settings
from store.settings import Settings


def problems_of(given: dict[str, object] | None = None) -> dict[str, str]:
    with pytest.raises(CliError) as refusal:
        read_settings(given)
    assert refusal.value.exit_code == INVALID
    return {".".join(map(str, entry["loc"])): str(entry["msg"]) for entry in refusal.value.problems}  # pyright: ignore[reportArgumentType]


def test_all_wrong_variables_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_LEASE_TTL_S", "soon")
    monkeypatch.setenv("REGATTA_DEVICES", "tpu:1")
    assert problems_of().keys() == {"REGATTA_LEASE_TTL_S", "REGATTA_DEVICES"}


def test_what_the_command_line_gave_has_the_name_of_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_POLL_S", "never")
    assert problems_of({"devices": "tpu:1"}).keys() == {"devices", "REGATTA_POLL_S"}


def test_a_problem_says_what_the_setting_is() -> None:
    with pytest.raises(CliError) as refusal:
        read_settings({"devices": "tpu:1"})
    hint = "Devices of this host: cpu:N (N processes), gpu:N, gpu (all found)."
    assert refusal.value.problems[0]["hint"] == hint


@pytest.mark.parametrize("name", ["DATABASE_URL", "BROKER_URL", "ARTIFACTS_URL"])
def test_a_wrong_url_is_refused_without_its_password(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"REGATTA_{name}", "ftp://user:secret@host/path")
    msg = problems_of()[f"REGATTA_{name}"]
    assert msg.startswith("got a URL of ftp://, expected ")
    assert "secret" not in msg


@pytest.mark.parametrize(
    ("name", "meant"), [("MODEL_ROOT", "MODEL_ROOTS"), ("BROKER", "BROKER_URL"), ("DEVICE", "DEVICES")]
)
def test_a_mistyped_variable_is_refused(name: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"REGATTA_{name}", "cpu:1")
    with pytest.raises(CliError) as refusal:
        read_settings()
    (problem,) = refusal.value.problems
    assert problem["loc"] == [f"REGATTA_{name}"]
    assert problem["hint"] == f"Did you mean REGATTA_{meant}?"


@pytest.mark.parametrize("name", ["URL", "API_KEY", "EVENTS", "RUNNER", "DEADLINE_FILE", "ORACLE_PYTHON"])
def test_variables_that_are_no_settings_of_the_service_are_left_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"REGATTA_{name}", "anything")
    assert read_settings().poll_s == 1.0


def test_devices_that_are_not_there_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(CliError, match="0 GPUs are visible on this host"):
        check_devices(Settings(data_dir=tmp_path, devices="gpu:1"))
