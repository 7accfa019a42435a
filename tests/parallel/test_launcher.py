"""Layouts whose processes are started as users start them: each imports Paddle and meets the others."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.parallel.cases import LAYOUTS, METHODS, Combination
from tests.parallel.matrix import Matrix, relative
from tests.training import read_events

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 400

pytestmark = [pytest.mark.parallel, pytest.mark.timeout(2 * TIMEOUT_S)]


def events_of(folder: Path, task: str, arguments: dict[str, Any], processes: int) -> list[dict[str, Any]]:
    """The events of a run of `python -m trainer`."""
    config, events, log = folder / "config.json", folder / "events.jsonl", folder / "log.txt"
    config.write_text(json.dumps(arguments | {"output_dir": str(folder / "output"), "device": "cpu"}))
    command = [sys.executable, "-m", "trainer", task, str(config), "--nproc", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "REGATTA_EVENTS": str(events)}
    with log.open("wb") as words:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=words, stderr=words, timeout=TIMEOUT_S, check=False
        )
    assert done.returncode == 0, log.read_text()
    return read_events(events)


@pytest.mark.parametrize("task", ["sft", "dpo"])
def test_eight_processes_of_three_kinds_train_as_one(matrix: Matrix, tmp_path: Path, task: str) -> None:
    layout, method = LAYOUTS[-1], next(method for method in METHODS if method.name == task)
    combination = Combination(layout, "gemma", method)
    events = events_of(tmp_path, method.task, matrix.arguments(combination), layout.world)
    (alone,) = matrix.trained(combination.alone)
    losses = [event["loss"] for event in events if event["type"] == "metric"]
    assert relative(losses, alone.losses) < 1e-5
    assert (tmp_path / "output" / "model.safetensors").is_file()
    assert len(list((tmp_path / "output" / "logs").glob("rank-*.log"))) == layout.world
