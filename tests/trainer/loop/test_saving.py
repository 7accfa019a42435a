"""Checkpoints of runs that train on while one is written."""

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ranks import RankError, run_ranks
from tests.training import Recorder
from trainer.checkpoint.find import checkpoint_damage
from trainer.checkpoint.work import Work
from trainer.config import FinetuneConfig
from trainer.loop.step import train_step
from trainer.run import run_task

MakeConfig = Callable[..., FinetuneConfig]

BESIDE = ({"use_async_save": True}, {"unified_checkpoint_config": "async_save"})


def run(
    config: FinetuneConfig, should_stop: Callable[[], bool] = lambda: False
) -> tuple[dict[str, Any], Recorder]:
    recorder = Recorder()
    return run_task("finetune", config, recorder.writer, should_stop), recorder


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def position(checkpoint: Path) -> tuple[Any, ...]:
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    return state["global_step"], state["position"], state["loss"]


def checkpoints(config: FinetuneConfig) -> list[str]:
    return sorted(path.name for path in Path(config.output_dir).glob("*checkpoint-*"))


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a checkpoint beside training takes some steps; the final model is written at once."""
    write = Work.run

    def run_slowly(work: Work) -> None:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.5)
        write(work)

    monkeypatch.setattr(Work, "run", run_slowly)


@pytest.mark.parametrize("argument", BESIDE)
def test_a_checkpoint_written_beside_training_is_that_of_its_step(
    make_config: MakeConfig, slow_disk: None, argument: dict[str, Any]
) -> None:
    quiet = {"save_steps": 2, "logging_steps": 100}
    at_once, beside = make_config(output_dir="at-once", **quiet), make_config(output_dir="beside", **quiet)
    run(at_once)
    run(beside.model_copy(update=argument))
    for step in (2, 4, 6, 8):
        expected, found = (Path(c.output_dir) / f"checkpoint-{step}" for c in (at_once, beside))
        assert checkpoint_damage(found) is None
        for name in ("model.safetensors", "optimizer.safetensors"):
            assert (found / name).read_bytes() == (expected / name).read_bytes()
        assert position(found) == position(expected)
    final = [files(Path(config.output_dir))["model.safetensors"] for config in (at_once, beside)]
    assert final[0] == final[1]


def test_it_is_told_when_it_is_complete_while_training_has_gone_on(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(save_steps=2, max_steps=4, use_async_save=True)
    recorder, third_step = Recorder(), threading.Event()
    write = Work.run

    def write_after_third_step(work: Work) -> None:
        assert third_step.wait(timeout=60)
        write(work)

    def look() -> bool:
        if len(recorder.of("metric")) == 3:
            third_step.set()
        told = [Path(event["path"]) for event in recorder.of("checkpoint")]
        assert all(checkpoint_damage(path) is None for path in told)
        return False

    monkeypatch.setattr(Work, "run", write_after_third_step)
    run_task("finetune", config, recorder.writer, look)
    told = [(event["type"], event["step"]) for event in recorder.events if "step" in event]
    assert told.index(("checkpoint", 2)) > told.index(("metric", 3))
    assert told.index(("checkpoint", 4)) > told.index(("checkpoint", 2))


def test_the_limit_of_checkpoints_keeps_the_newest_complete_and_the_best_one(
    make_config: MakeConfig, slow_disk: None
) -> None:
    config = make_config(
        save_strategy="steps",
        save_steps=2,
        evaluation_strategy="steps",
        eval_steps=2,
        save_total_limit=1,
        load_best_model_at_end=True,
        learning_rate=1e-2,
        use_async_save=True,
    )
    result, recorder = run(config)
    best = result["metrics"]["best_model_checkpoint"]
    assert checkpoints(config) == sorted({best, "checkpoint-8"})
    for event in recorder.of("checkpoint_removed"):
        assert event["name"] not in (best, "checkpoint-8")
    weights = files(Path(config.output_dir) / best)["model.safetensors"]
    assert files(Path(config.output_dir))["model.safetensors"] == weights


def test_a_stop_waits_for_the_checkpoint_of_its_step(make_config: MakeConfig, slow_disk: None) -> None:
    config = make_config(save_steps=3, use_async_save=True)
    recorder = Recorder()

    def stop() -> bool:
        return len(recorder.of("metric")) >= 3

    result = run_task("finetune", config, recorder.writer, stop)
    assert result["path"] == str(Path(config.output_dir) / "checkpoint-3")
    assert [event["step"] for event in recorder.of("checkpoint")] == [3]
    assert checkpoint_damage(Path(result["path"])) is None


def test_a_full_disk_ends_the_run_and_leaves_the_checkpoint_before(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(save_steps=2, use_async_save=True)
    make_room = os.posix_fallocate

    def no_room(descriptor: int, offset: int, length: int) -> None:
        if (Path(config.output_dir) / "checkpoint-2").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        make_room(descriptor, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(OSError, match="No space left on device"):
        run(config)
    assert checkpoints(config) == ["checkpoint-2"]


def test_an_error_of_training_does_not_hide_what_was_saved_before_it(
    make_config: MakeConfig, slow_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(save_steps=2, use_async_save=True)

    def fail_at_third(*args: Any, step: int, **more: Any) -> Any:
        if step == 3:
            raise ZeroDivisionError
        return train_step(*args, step=step, **more)

    monkeypatch.setattr("trainer.loop.train.train_step", fail_at_third)
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError):
        run_task("finetune", config, recorder.writer, lambda: False)
    assert checkpoint_damage(Path(config.output_dir) / "checkpoint-2") is None
    assert [event["step"] for event in recorder.of("checkpoint")] == [2]


def test_a_run_goes_on_from_a_checkpoint_that_was_written_beside_training(
    make_config: MakeConfig, slow_disk: None
) -> None:
    whole = make_config(output_dir="whole", save_strategy="no")
    run(whole)
    halves = make_config(output_dir="halves", save_steps=4, use_async_save=True)
    recorder = Recorder()
    run_task("finetune", halves, recorder.writer, lambda: len(recorder.of("metric")) >= 5)
    run(halves)
    expected = files(Path(whole.output_dir))["model.safetensors"]
    assert files(Path(halves.output_dir))["model.safetensors"] == expected


def train_as_one_of_two(config: FinetuneConfig, dying: int | None) -> list[int]:
    """Train; returns the steps that are logged. `dying` is killed while it writes its second checkpoint."""
    recorder, write = Recorder(), os.pwrite
    if int(os.environ["PADDLE_TRAINER_ID"]) == dying:

        def write_or_die(*args: Any) -> int:
            if (Path(config.output_dir) / "checkpoint-2").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            return write(*args)

        os.pwrite = write_or_die
    run_task("finetune", config, recorder.writer, lambda: False)
    return [metric["step"] for metric in recorder.of("metric")]


@pytest.mark.parametrize("dying", [0, 1])
def test_when_a_process_is_killed_in_a_save_the_next_attempt_goes_on_from_the_checkpoint_before(
    make_config: MakeConfig, dying: int
) -> None:
    parts = {"tensor_parallel_degree": 2, "save_steps": 2, "use_async_save": True}
    whole = make_config(output_dir="whole", **parts)
    run_ranks(2, train_as_one_of_two, whole, None)
    killed = make_config(output_dir="killed", **parts)
    with pytest.raises(RankError):
        run_ranks(2, train_as_one_of_two, killed, dying)
    assert checkpoints(killed)[-1] == "checkpoint-2"
    assert run_ranks(2, train_as_one_of_two, killed, None)[0] == [3, 4, 5, 6, 7, 8]
    final = [files(Path(config.output_dir))["model.safetensors"] for config in (whole, killed)]
    assert final[0] == final[1]
    hidden = [path.name for path in Path(killed.output_dir).glob(".*")]
    assert hidden == []
