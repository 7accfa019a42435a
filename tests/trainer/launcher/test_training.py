"""`python -m trainer TASK CONFIG --nproc 2`: real ranks that train together, and what ends them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.training import read_events, write_records
from trainer.checkpoint.find import list_checkpoints

TIMEOUT_S = 120
ROOT = Path(__file__).parents[3]


class Training:
    """A training of two processes in a folder of its own; may be started again."""

    def __init__(self, folder: Path, arguments: dict[str, Any]) -> None:
        folder.mkdir()
        self.output = folder / "output"
        self.logs = self.output / "logs"
        self.events = folder / "events.jsonl"
        self._log = folder / "log.txt"
        self._config = folder / "config.json"
        self._config.write_text(json.dumps({**arguments, "output_dir": str(self.output), "device": "cpu"}))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "trainer", "finetune", str(self._config), "--nproc", "2", *words]
        given = {**os.environ, "OMP_NUM_THREADS": "1", "REGATTA_EVENTS": str(self.events)}
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=given, stdout=log, stderr=subprocess.STDOUT
            )
        return self.process

    def run(self, *words: str) -> int:
        return self.start(*words).wait(timeout=TIMEOUT_S)

    def wait_for_step(self, step: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not any(event["step"] >= step for event in self.of("metric")):
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.005)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in read_events(self.events) if event["type"] == kind]

    def losses(self) -> dict[int, float]:
        return {event["step"]: event["loss"] for event in self.of("metric")}

    def pid(self, rank: int) -> int:
        return json.loads((self.logs / f"start-{rank}.json").read_text())["pid"]

    def log(self) -> str:
        return self._log.read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def make(arguments: dict[str, Any], tmp_path: Path) -> Iterator[Callable[..., Training]]:
    made: list[Training] = []

    def make_one(name: str = "run", **changes: Any) -> Training:
        made.append(Training(tmp_path / name, {**arguments, **changes}))
        return made[-1]

    yield make_one
    for training in made:
        training.end()


MakeTraining = Callable[..., Training]


def test_two_processes_train_as_one_with_twice_the_accumulation(make: MakeTraining) -> None:
    alone, together = make("alone"), make("together", gradient_accumulation_steps=1)
    assert alone.run("--nproc", "1") == 0, alone.log()
    assert together.run() == 0, together.log()
    assert together.losses() == pytest.approx(alone.losses(), rel=1e-5)
    assert len(together.of("result")) == 1
    assert "done: " in together.log()
    assert "done: " in (together.logs / "rank-1.log").read_text()


def test_sigterm_saves_one_checkpoint_from_which_the_next_run_goes_on(make: MakeTraining) -> None:
    training = make(num_train_epochs=400, save_steps=100_000)
    process = training.start()
    training.wait_for_step(3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=TIMEOUT_S) == 0, training.log()
    (result,) = training.of("result")
    (checkpoint,) = list_checkpoints(training.output)
    assert (result["stopped"], result["path"]) == (True, str(checkpoint.path))
    assert training.run("--set", f"max_steps={checkpoint.step + 2}") == 0, training.log()
    assert f"going on from step {checkpoint.step} " in training.log()
    assert sorted(training.losses()) == list(range(1, checkpoint.step + 3))


def test_a_killed_rank_ends_all_and_the_next_run_goes_on_from_the_last_checkpoint(make: MakeTraining) -> None:
    training = make(num_train_epochs=400, save_steps=5, lr_scheduler_type="constant")
    process = training.start()
    training.wait_for_step(6)
    os.kill(training.pid(1), signal.SIGKILL)
    assert process.wait(timeout=TIMEOUT_S) == 128 + signal.SIGKILL, training.log()
    (error,) = training.of("error")
    assert (error["kind"], error["rank"]) == ("rank_killed", 1)
    assert error["msg"].startswith("Rank 1 was killed by signal 9 (SIGKILL).")
    step, before = list_checkpoints(training.output)[-1].step, training.losses()
    assert training.run("--set", f"max_steps={step + 3}") == 0, training.log()
    assert f"going on from step {step} " in training.log()
    again = training.losses()
    assert sorted(again) == list(range(1, max(step + 3, *before) + 1))
    assert {number: again[number] for number in before} == pytest.approx(before, rel=1e-5)


def test_what_is_wrong_is_told_once_before_any_process_is_started(make: MakeTraining, tmp_path: Path) -> None:
    write_records(tmp_path / "data" / "train.json", [("a", "b"), ("a", 5)])
    training = make(dataset_name_or_path=str(tmp_path / "data"))
    assert training.run() == 3
    (error,) = training.of("error")
    assert error["kind"] == "data"
    assert not training.logs.exists()


def test_degrees_that_do_not_fit_the_processes_are_a_bad_config(make: MakeTraining) -> None:
    training = make(tensor_parallel_degree=4)
    assert training.run() == 2
    (error,) = training.of("error")
    assert error["problems"][0]["loc"] == ["tensor_parallel_degree"]


def test_warnings_are_told_once(make: MakeTraining) -> None:
    training = make(max_steps=1, bf16=True, save_steps=1)
    assert training.run() == 0, training.log()
    told = [(tuple(event["loc"]), event["msg"]) for event in training.of("warning")]
    assert len(told) == len(set(told)) > 0


def test_a_failure_of_the_ranks_is_shown_once(make: MakeTraining) -> None:
    training = make(learning_rate=1e30, max_steps=50, warmup_ratio=0.0, logging_steps=1)
    assert training.run() == 1, training.log()
    (error,) = training.of("error")
    assert error["kind"] == "nan_loss"
    assert training.log().count(error["msg"]) == 1
