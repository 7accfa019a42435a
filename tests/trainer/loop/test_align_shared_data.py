"""Tasks dpo and kto learn from real preference data."""

import itertools
from pathlib import Path

import pytest

from tests.training import Recorder
from trainer.config import read_config
from trainer.run import run_task

SHARED = Path(__file__).parents[4] / "shared" / "data"
RECORDS = 40
STEPS = 60
# Steps at the end whose metrics are averaged: as many as one pass over the records takes, or more.
LAST = 10


def averages(recorder: Recorder, name: str) -> float:
    """Mean of a metric over the last steps that have it."""
    values = [metric[name] for metric in recorder.of("metric")[-LAST:] if name in metric]
    return sum(values) / len(values)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data is not beside this checkout")
@pytest.mark.parametrize("task", ["dpo", "kto"])
def test_training_comes_to_prefer_the_chosen_responses_of_real_data(
    tiny_gemma: Path, tmp_path: Path, task: str
) -> None:
    with (SHARED / task / "train.jsonl").open(encoding="utf-8") as file:
        (tmp_path / "train.jsonl").write_text("".join(itertools.islice(file, RECORDS)), encoding="utf-8")
    arguments = {
        "model_name_or_path": str(tiny_gemma),
        "train_dataset_path": str(tmp_path / "train.jsonl"),
        "output_dir": str(tmp_path / "output"),
        "do_train": True,
        "do_eval": False,
        "max_steps": STEPS,
        "max_seq_len": 256,
        "max_prompt_len": 64,
        "per_device_train_batch_size": RECORDS // LAST,
        "learning_rate": 2e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "seed": 7,
    }
    reading = read_config(task, arguments)
    assert reading.config is not None, reading.problems
    recorder = Recorder()
    run_task(task, reading.config, recorder.writer, lambda: False)
    assert averages(recorder, "rewards/chosen") > averages(recorder, "rewards/rejected")
    if task == "dpo":
        assert recorder.of("metric")[0]["rewards/accuracies"] <= 0.9
        assert averages(recorder, "rewards/accuracies") > 0.9
