"""The trainer as a process: exit codes, events, signals, and death at any moment."""

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

from tests.training import Recorder, read_events, tensors_of, write_records
from trainer.checkpoint.find import checkpoint_damage
from trainer.config.preflight import Roots
from trainer.files import held_folder
from trainer.run import main, report_failure

TIMEOUT = 90
ROOT = Path(__file__).parents[2]


class Trainer:
    """One trainer process at a time, in a folder of its own."""

    def __init__(self, folder: Path, arguments: dict[str, Any]) -> None:
        self.events = folder / "events.jsonl"
        self.log = folder / "log.txt"
        self.output = Path(arguments["output_dir"])
        self._config = folder / "config.json"
        self._config.write_text(json.dumps(arguments))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str, **environment: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "trainer", "finetune", str(self._config), *more]
        given = {**os.environ, "OMP_NUM_THREADS": "1", "REGATTA_EVENTS": str(self.events), **environment}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(words, cwd=ROOT, env=given, stdout=log, stderr=subprocess.STDOUT)
        return self._process

    def run(self, *more: str, **environment: str) -> int:
        return self.start(*more, **environment).wait(timeout=TIMEOUT)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; fails when the process ends before."""
        assert self._process is not None
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.001)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in read_events(self.events) if event["type"] == kind]

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def make_trainer(arguments: dict[str, Any], tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    made: list[Trainer] = []

    def make(name: str = "run", **changes: Any) -> Trainer:
        folder = tmp_path / name
        folder.mkdir()
        made.append(Trainer(folder, {**arguments, "output_dir": str(folder / "output"), **changes}))
        return made[-1]

    yield make
    for trainer in made:
        trainer.end()


MakeTrainer = Callable[..., Trainer]


def test_a_run_exits_0_and_its_last_event_is_the_result(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(evaluation_strategy="epoch", save_strategy="epoch")
    assert trainer.run() == 0
    last = read_events(trainer.events)[-1]
    assert (last["type"], last["stopped"], last["path"]) == ("result", False, str(trainer.output))
    assert [event["name"] for event in trainer.of("checkpoint")] == ["checkpoint-4", "checkpoint-8"]
    log = trainer.log.read_text()
    assert log.count(": loss ") == 8 + 2
    assert "step 8/8, epoch 2.00: loss" in log


def test_overrides_are_applied_and_their_warnings_are_events(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    assert trainer.run("--set", "max_steps=1", "--set", "bf16=true") == 0
    assert trainer.of("progress")[0]["total_steps"] == 1
    assert ["bf16"] in [event["loc"] for event in trainer.of("warning")]


def test_without_an_events_file_none_is_written(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(max_steps=1)
    assert trainer.run(REGATTA_EVENTS="") == 0
    assert not trainer.events.exists()


# Bad input is told before Paddle is imported, so these run in this process.


@pytest.fixture
def run_main(
    arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[int, dict[str, Any]]]]:
    """Run `main` with changed arguments; gives the exit code and the last event."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    monkeypatch.setenv("REGATTA_EVENTS", str(tmp_path / "events.jsonl"))

    def run(*words: str, **changes: Any) -> tuple[int, dict[str, Any]]:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**arguments, **changes}))
        return main(["finetune", str(path), *words]), read_events(tmp_path / "events.jsonl")[-1]

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


RunMain = Callable[..., tuple[int, dict[str, Any]]]


def test_a_bad_config_exits_2_and_names_every_problem(run_main: RunMain) -> None:
    code, error = run_main(learning_rate=-1, learing_rate=1)
    assert (code, error["type"], error["kind"]) == (2, "error", "config")
    assert {problem["loc"][0] for problem in error["problems"]} == {"learning_rate", "learing_rate"}
    assert "(1 more problem)" in error["msg"]


def test_a_folder_that_another_run_has_is_not_shared(run_main: RunMain, tmp_path: Path) -> None:
    with held_folder(tmp_path / "out"):
        code, error = run_main(output_dir=str(tmp_path / "out"))
    assert code == 2
    assert error["msg"].startswith(f"output_dir: {tmp_path / 'out'} is in use by another run")


def test_a_folder_that_cannot_be_made_is_a_bad_config(run_main: RunMain, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, error = run_main(output_dir=str(tmp_path / "file" / "out"))
    assert (code, error["kind"]) == (2, "config")
    assert error["problems"][0]["loc"] == ["output_dir"]


def test_a_folder_for_logs_that_cannot_be_made_is_told_before_processes_start(
    run_main: RunMain, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    code, error = run_main("--nproc", "2", "--logs", str(tmp_path / "file" / "logs"))
    assert (code, error["kind"]) == (2, "config")
    assert error["problems"][0]["loc"] == ["logs"]


def test_a_missing_model_is_a_bad_config(run_main: RunMain, tmp_path: Path) -> None:
    code, error = run_main(model_name_or_path=str(tmp_path / "nowhere"))
    assert (code, error["kind"]) == (2, "config")
    assert error["problems"][0]["loc"] == ["model_name_or_path"]


def test_bad_data_exits_3_with_the_number_of_the_line(run_main: RunMain, tmp_path: Path) -> None:
    write_records(tmp_path / "data" / "train.json", [("a", "b"), ("a", 5)])
    code, error = run_main(dataset_name_or_path=str(tmp_path / "data"))
    assert (code, error["kind"]) == (3, "data")
    assert ["dataset_name_or_path", "train.json", 2] in [problem["loc"] for problem in error["problems"]]


def test_what_has_become_a_link_out_of_the_roots_since_the_job_was_sent_is_not_read(
    run_main: RunMain, arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = Path(arguments["model_name_or_path"]), tmp_path / "data"
    monkeypatch.setenv("REGATTA_ROOTS", Roots((model.parent,), (tmp_path / "data",)).to_text())
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "secret.json"
    secret.write_text('{"src": "a", "tgt": "hush"}\n')
    data.mkdir()
    (data / "train.json").symlink_to(secret)
    code, error = run_main(dataset_name_or_path=str(data), output_dir="out")
    assert (code, error["kind"]) == (3, "data")
    assert "train.json is a link to a place outside the allowed folders" in error["msg"]
    code, error = run_main(dataset_name_or_path=str(data), model_name_or_path="/etc", output_dir="out")
    assert (code, error["problems"][0]["loc"]) == (2, ["model_name_or_path"])


def test_a_task_that_is_not_known_is_the_only_problem_that_is_told(tmp_path: Path, run_main: RunMain) -> None:
    (tmp_path / "tune.json").write_text('{"learing_rate": 1}')
    assert main(["fintune", str(tmp_path / "tune.json")]) == 2
    (problem,) = read_events(tmp_path / "events.jsonl")[-1]["problems"]
    assert problem["hint"] == "Did you mean finetune?"


def test_a_config_that_is_not_there_exits_2(tmp_path: Path, run_main: RunMain) -> None:
    assert main(["finetune", str(tmp_path / "none.json")]) == 2


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (MemoryError(), "oom", "Lower max_length"),
        (
            RuntimeError("ResourceExhaustedError: Out of memory error on GPU 0."),
            "oom",
            "per_device_train_batch_size",
        ),
        (OSError(28, "No space left on device", "/out/model.safetensors"), "disk", "/out/model.safetensors"),
        (OSError(28, "No space left on device"), "disk", "The disk is full. Free some space"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "disk", "The disk is full."),
        (OSError(122, "Disk quota exceeded"), "disk", "The disk is full."),
        (ValueError("a bad\nthing"), "internal", "ValueError: a bad thing. The log has"),
    ],
)
def test_an_unexpected_error_exits_1_with_one_sentence(error: Exception, kind: str, words: str) -> None:
    recorder = Recorder()
    assert report_failure(error, recorder.writer) == 1
    (event,) = recorder.events
    assert (event["type"], event["kind"]) == ("error", kind)
    assert words in event["msg"]
    assert "\n" not in event["msg"]


# Signals, deadlines and death


def test_sigterm_finishes_the_step_saves_it_and_exits_0(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(num_train_epochs=500, save_steps=10_000)
    process = trainer.start()
    trainer.wait_for(lambda: len(trainer.of("metric")) >= 3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=TIMEOUT) == 0
    result = read_events(trainer.events)[-1]
    last_step = trainer.of("metric")[-1]["step"]
    assert (result["type"], result["stopped"], result["kept"]) == ("result", True, True)
    assert result["path"] == str(trainer.output / f"checkpoint-{last_step}")
    assert checkpoint_damage(Path(result["path"])) is None


def test_sigterm_while_starting_is_not_lost(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(num_train_epochs=500, bf16=True)
    process = trainer.start()
    # The first line of the log, a warning of the data check, comes before Paddle is imported.
    trainer.wait_for(lambda: trainer.log.exists() and trainer.log.stat().st_size > 0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=TIMEOUT) == 0
    assert trainer.of("result")[0]["stopped"]


def test_a_deadline_that_passes_ends_the_process_with_75(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    deadline = tmp_path / "deadline"
    deadline.write_text(f"{time.clock_gettime(time.CLOCK_BOOTTIME) + 3600}")
    trainer = make_trainer(num_train_epochs=500, save_steps=10_000)
    process = trainer.start(REGATTA_DEADLINE_FILE=str(deadline))
    trainer.wait_for(lambda: len(trainer.of("metric")) >= 2)
    (tmp_path / "new").write_text("1.0")
    (tmp_path / "new").replace(deadline)
    assert process.wait(timeout=TIMEOUT) == 75
    assert not trainer.of("result")


def test_a_run_that_is_killed_again_and_again_ends_like_one_that_was_not(make_trainer: MakeTrainer) -> None:
    changes = {
        "num_train_epochs": 6,
        "evaluation_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "warmup_steps": 3,
    }
    whole = make_trainer("whole", **changes)
    assert whole.run() == 0
    killed = make_trainer("killed", **changes)

    def is_saving(_: int) -> bool:
        return any(killed.output.glob(".checkpoint-*.partial"))

    def has_trained(steps: int) -> bool:
        return len(killed.of("metric")) >= steps

    for steps, moment in ((3, has_trained), (6, is_saving), (11, has_trained), (14, is_saving)):
        process = killed.start()
        killed.wait_for(lambda steps=steps, moment=moment: has_trained(steps) and moment(steps))
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=TIMEOUT) == -signal.SIGKILL
    assert killed.run() == 0

    last = {metric["step"]: metric for metric in killed.of("metric")}
    for metric in whole.of("metric"):
        again = last[metric["step"]]
        for name in ("epoch", "loss", "learning_rate", "grad_norm", "tokens"):
            assert again[name] == metric[name]
    assert tensors_of(killed.output) == tensors_of(whole.output)
    for file in ("model.safetensors", "optimizer.safetensors"):
        saved = [trainer.output / "checkpoint-24" for trainer in (killed, whole)]
        assert tensors_of(saved[0], file) == tensors_of(saved[1], file)
    assert not [path for path in killed.output.iterdir() if path.name.startswith(".")]


def test_a_bloom_that_is_killed_goes_on_and_ends_like_one_that_was_not(
    make_trainer: MakeTrainer, tiny_bloom: Path
) -> None:
    changes = {
        "model_name_or_path": str(tiny_bloom),
        "num_train_epochs": 4,
        "learning_rate": 5e-3,
        "evaluation_strategy": "epoch",
        "save_strategy": "epoch",
    }
    whole = make_trainer("whole", **changes)
    assert whole.run() == 0, whole.log.read_text()
    losses = [metric["loss"] for metric in whole.of("metric")]
    assert losses[-1] < 0.9 * losses[0]
    assert whole.of("eval")[-1]["eval_accuracy"] > whole.of("eval")[0]["eval_accuracy"]
    killed = make_trainer("killed", **changes)
    process = killed.start()
    killed.wait_for(lambda: len(killed.of("checkpoint")) >= 2)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=TIMEOUT)
    assert killed.run() == 0, killed.log.read_text()
    assert killed.of("progress")[-1]["step"] == whole.of("progress")[-1]["step"] == 16
    assert tensors_of(killed.output) == tensors_of(whole.output)
    assert json.loads((whole.output / "config.json").read_text())["model_type"] == "bloom"
    assert (whole.output / "tokenizer.json").read_bytes() == (tiny_bloom / "tokenizer.json").read_bytes()


def test_starting_up_does_not_import_paddle_before_the_arguments_are_checked() -> None:
    code = "import sys, trainer.run; sys.exit('paddle' in sys.modules or 'numpy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=TIMEOUT, check=False).returncode == 0
    )
