"""The container files name settings, commands, stages and folders that exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from cli.main import app
from store.settings import Settings

REPOSITORY = Path(__file__).parents[2]
DOCKER = REPOSITORY / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
FILES = ("Dockerfile", "compose.yaml", ".env.example")
COMMANDS = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
OF_THE_PROJECT = ("migrate", "api", "scheduler", "worker")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_every_setting_that_is_named_exists(name: str) -> None:
    named = set(re.findall(r"\bREGATTA_([A-Z0-9_]+)", (DOCKER / name).read_text(encoding="utf-8")))
    assert named
    assert {setting.lower() for setting in named} <= set(Settings.model_fields)


def test_the_example_names_each_variable_that_compose_reads() -> None:
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    example = (DOCKER / ".env.example").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)", text)) == set(re.findall(r"^(\w+)=", example, re.MULTILINE))


def test_settings_read_what_the_example_says(monkeypatch: pytest.MonkeyPatch) -> None:
    example = (DOCKER / ".env.example").read_text(encoding="utf-8")
    for name, value in re.findall(r"^(REGATTA_\w+)=(.*)$", example, re.MULTILINE):
        monkeypatch.setenv(name, value)
    assert Settings().devices == "cpu:2"


@pytest.mark.parametrize("service", OF_THE_PROJECT)
def test_services_run_commands_of_regatta(compose: dict[str, Any], service: str) -> None:
    command, *_ = compose["services"][service]["command"]
    assert command == service
    assert command in COMMANDS


def test_images_run_commands_of_regatta() -> None:
    started = set(re.findall(r'^CMD \["(\w+)"(?:, "--stop-jobs")?\]$', DOCKERFILE, re.MULTILINE))
    assert started == {"api", "worker"}
    assert started <= COMMANDS


def test_services_are_built_from_stages_that_exist(compose: dict[str, Any]) -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    targets = {compose["services"][service]["build"]["target"] for service in OF_THE_PROJECT}
    assert targets == {"service", "worker-cpu"}
    assert targets <= stages


def test_dependencies_and_volumes_are_declared(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for needed, how in service.get("depends_on", {}).items():
            other = compose["services"][needed]
            assert how["condition"] == "service_completed_successfully" or "test" in other["healthcheck"]
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source.startswith("$") or source in compose["volumes"]


def test_no_image_runs_as_root() -> None:
    for stage in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]:
        users = re.findall(r"^USER (\S+)$", stage, re.MULTILINE)
        assert not users or users[-1] == "10001:10001"
    runtime = re.search(r"AS runtime\n(.*?)^FROM ", DOCKERFILE, re.MULTILINE | re.DOTALL)
    assert runtime
    assert "\nUSER 10001:10001\n" in runtime[1]


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    sent = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        for source in words.split()[:-1]:
            assert (REPOSITORY / source).exists(), source
            assert f"!{source}" in sent


def test_hadolint_finds_nothing_wrong() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, DOCKER / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout


def test_every_package_of_the_project_is_copied() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages == set(re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE))


def test_only_the_api_is_published_and_only_here(compose: dict[str, Any]) -> None:
    ports = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert ports == {"api": ["127.0.0.1:8000:8000"]}
    assert compose["services"]["api"]["environment"]["REGATTA_API_KEYS_REQUIRED"] == "true"
