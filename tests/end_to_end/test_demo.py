"""The first command of a newcomer: `regatta demo`, run as they would."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cli.demo.run import DATA, QUESTIONS

TIMEOUT_S = 170.0


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """An environment with its own folder for temporary files, and a setting that the demo must not follow."""
    # pytest's own folders have names so long that the broker's socket would lie elsewhere.
    with tempfile.TemporaryDirectory(prefix="regatta-test-") as temporary:
        foreign = {"REGATTA_DATABASE_URL": "postgresql://nobody@192.0.2.1/none"}
        yield os.environ | foreign | {"TMPDIR": temporary, "COLUMNS": "160"}


def demo(*words: str) -> list[str]:
    return [sys.executable, "-m", "cli", "demo", *words]


def processes_in(environment: dict[str, str]) -> list[str]:
    """The command lines of all processes that were started with this temporary folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == environment["TMPDIR"]:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_the_demo_teaches_a_tiny_model_and_leaves_nothing_but_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    done = subprocess.run(
        demo("--model-dir", str(model)),
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())

    losses = re.search(r"Loss at step (\d+): ([\d.]+)\. At step (\d+): ([\d.]+)\.", words)
    assert losses is not None
    assert float(losses[4]) < 0.1 < 5 < float(losses[2])
    assert re.search(r"running step \d+/300 loss [\d.]+ [\d,]+ tokens/s", words)

    taught = {row["src"]: row["tgt"] for row in map(json.loads, (DATA / "train.json").open())}
    for question in QUESTIONS:
        assert re.search(rf"│ {re.escape(question)} │ .+? │ {re.escape(taught[question])} │", words)

    for call in ("/jobs -H", "/metrics", "/logs?tail=20", "/result/archive | tar x"):
        assert re.search(rf"\$ curl .*{re.escape(call)}", done.stdout)
    assert "the service is down" in words
    assert {"config.json", "model.safetensors", "tokenizer.model"} <= {path.name for path in model.iterdir()}
    assert list(Path(environment["TMPDIR"]).iterdir()) == []
    assert processes_in(environment) == []


@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_while_it_trains_leaves_nothing(
    environment: dict[str, str], number: signal.Signals
) -> None:
    process = subprocess.Popen(
        demo(), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(line.startswith("running") for line in lines), "it never trained"
        process.send_signal(number)
        rest = process.communicate(timeout=TIMEOUT_S)[0]
    finally:
        process.kill()
    assert process.returncode not in (0, -signal.SIGKILL)
    assert "Traceback" not in rest
    assert list(Path(environment["TMPDIR"]).iterdir()) == []
    assert processes_in(environment) == []


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_the_processes_of_a_demo_that_is_killed_end_too(environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        demo(), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        assert any("Regatta is ready" in line for line in iter(process.stdout.readline, ""))
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while left := processes_in(environment):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
