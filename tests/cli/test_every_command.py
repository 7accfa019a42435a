"""What holds of every command: help with examples to type, JSON, one sentence when no server answers."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from cli.commands.examples import EXAMPLES
from cli.errors import AWAY, FAILED, INVALID
from cli.main import app
from tests.cli.scripted_server import answer, serving

DOCS = Path(__file__).parents[2] / "docs"
NOBODY = "http://127.0.0.1:9"
WITHOUT_SERVER = {
    *("demo", "up", "migrate", "api", "scheduler", "worker"),
    *("train", "preview", "estimate", "generate", "merge", "export", "evaluate", "tiny-model"),
    *("secrets new-key", "secrets rotate"),
}
WITHOUT_JSON = {
    "its log is what there is to read": ("demo", "up", "api", "scheduler", "worker", "train"),
    "its result is files": ("merge", "export", "evaluate", "tiny-model", "download", "datasets download"),
    "says in a sentence that it is done": (
        *("migrate", "delete", "pipelines delete", "datasets delete"),
        *("keys revoke", "secrets set", "secrets delete", "secrets rotate"),
    ),
    "prints one value and nothing else": ("secrets new-key",),
}


def leaves(group: Any, words: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{words}{name} ")
        else:
            yield words + name, command


COMMANDS = dict(leaves(typer.main.get_command(app)))


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def calls(example: str) -> list[list[str]]:
    """The words after `regatta` of each call in a line for a shell."""
    line = re.sub(r"^\w+=\$\((.*)\)$", r"\1", example)
    parts = [shlex.split(part) for part in line.split(" && ")]
    found = []
    for words in parts:
        while re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        assert words.pop(0) == "regatta"
        ends = [words.index(sign) for sign in "<>" if sign in words]
        found.append(words[: min(ends, default=len(words))])
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files and folders that the examples name."""
    for name in ("models", "data", "folder"):
        (tmp_path / name).mkdir()
    for name in ("train.json", "dev.json.gz", "folder/train.json"):
        (tmp_path / name).write_text('{"src": "a", "tgt": "b"}\n')
    (tmp_path / "sft.json").write_text('{"dataset_name_or_path": "data"}')
    (tmp_path / "pipeline.json").write_text('{"jobs": []}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_has_help_and_examples_that_its_own_options_take(folder: Path) -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    for words, command in COMMANDS.items():
        assert command.help, words
        assert all(parameter.help for parameter in command.params), words
        for example in EXAMPLES[words]:
            assert example in command.epilog
            for call in calls(example.replace("~/", f"{folder}/")):
                name = max((w for w in COMMANDS if call[: len(w.split())] == w.split()), key=len)
                COMMANDS[name].make_context(name, call[len(name.split()) :])


def test_every_command_that_shows_data_prints_json_too() -> None:
    listed = [words for group in WITHOUT_JSON.values() for words in group]
    assert {words for words, command in COMMANDS.items() if "--json" not in options(command)} == set(listed)


def test_without_a_server_every_command_says_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGATTA_URL", NOBODY)
    for words in COMMANDS.keys() - WITHOUT_SERVER:
        (call, *_) = calls(EXAMPLES[words][0])
        call = [word for word in call if word != "--database"]
        done = CliRunner().invoke(app, call, input="a-secret-value\n")
        assert done.exit_code == AWAY, (call, done.output)
        (line,) = [line for line in done.stderr.splitlines() if not line.startswith("Task: ")]
        assert line.startswith(f"No Regatta server answers at {NOBODY} ("), call
        assert line.endswith("Start one with `regatta up`, or set REGATTA_URL to where it runs.")
        assert done.stdout == ""


def test_jobs_filters_as_the_api_does() -> None:
    from api.app import create_app
    from store.settings import Settings

    operation = create_app(Settings()).openapi()["paths"]["/jobs"]["get"]
    of_pages = {"cursor", "view"}
    asked = {parameter["name"] for parameter in operation["parameters"]} - of_pages
    assert asked == {option.removeprefix("--") for option in options(COMMANDS["jobs"])} - {"json"}


def test_the_page_tells_the_exit_statuses() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| exit status \| says \|\n(.*?)\n\n", page, re.DOTALL)
    told = [int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert told == [0, FAILED, INVALID, AWAY, 130]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_REGATTA_COMPLETE", f"complete_{shell}")
    for typed, expected in (("regatta plo", "plot"), ("regatta jobs --st", "--status")):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", typed)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        done = CliRunner().invoke(app, prog_name="regatta")
        assert expected in done.output


def on_a_terminal(url: str, **environment: str) -> str:
    """What `regatta jobs` prints into a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    given = os.environ | {"REGATTA_URL": url, "COLUMNS": "120", "TERM": "xterm-256color"} | environment
    command = [sys.executable, "-m", "cli", "jobs"]
    try:
        subprocess.run(command, env=given, stdout=theirs, stderr=theirs, timeout=60, check=True)
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_colours_are_for_terminals_that_want_them() -> None:
    job = {"id": "j", "task": "finetune", "status": "running"}
    page = answer(200, json.dumps({"items": [job], "next_cursor": None}).encode())
    with serving(page) as server:
        assert "\x1b[1;34mrunning" in on_a_terminal(server.url)
        plain = on_a_terminal(server.url, NO_COLOR="1")
        piped = CliRunner().invoke(app, ["jobs"], env={"REGATTA_URL": server.url}).output
    assert "running" in plain
    assert not re.search(r"\x1b\[[\d;]*3\d", plain)
    assert "running" in piped
    assert "\x1b" not in piped
