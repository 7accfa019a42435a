"""Tasks dpo and kto in this process: what a run computes, tells, saves and goes on from."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from tests.training import Recorder, tensors_of
from trainer.config import ConfigError, read_config
from trainer.loop.reference_cache import model_fingerprint
from trainer.run import run_task

LOSS_TYPES = ("sigmoid", "hinge", "ipo", "kto_pair", "sppo_hard", "nca_pair", "dpop", "simpo", "orpo", "or")
TURN = "What follows"

Run = Callable[..., tuple[dict[str, Any], Recorder]]


def pair(number: int) -> dict[str, Any]:
    """A question with a right and a wrong answer, of different lengths."""
    right, wrong = f"After {number} comes {number + 1}.", f"Nothing at all comes after {number}, I am sure."
    return {"src": f"{TURN} {number}?", "response": [wrong, right], "sort": [0, 1]}


def judged(number: int) -> dict[str, Any]:
    """The same with one of the answers, right ones and wrong ones in turn."""
    record = pair(number)
    return record | {"response": [record["response"][number % 2]], "sort": [number % 2]}


@pytest.fixture(scope="session")
def preferences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files dpo-train, dpo-dev, kto-train and kto-dev."""
    folder = tmp_path_factory.mktemp("preferences")
    for task, record in (("dpo", pair), ("kto", judged)):
        for split, numbers in (("train", range(12)), ("dev", range(12, 17))):
            lines = [json.dumps(record(number)) + "\n" for number in numbers]
            (folder / f"{task}-{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def run(tiny_gemma: Path, preferences: Path, tmp_path: Path) -> Run:
    def run(
        task: str, *, should_stop: Callable[[], bool] = lambda: False, **more: Any
    ) -> tuple[dict[str, Any], Recorder]:
        output = tmp_path / more.pop("output", "output")
        arguments = {
            "model_name_or_path": str(tiny_gemma),
            "train_dataset_path": str(preferences / f"{task}-train.jsonl"),
            "dev_dataset_path": str(preferences / f"{task}-dev.jsonl"),
            "output_dir": str(output),
            "do_train": True,
            "num_train_epochs": 1,
            "max_seq_len": 128,
            "max_prompt_len": 32,
            "per_device_train_batch_size": 1,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "save_strategy": "no",
            "seed": 7,
            **more,
        }
        reading = read_config(task, arguments)
        assert reading.config is not None, reading.problems
        recorder = Recorder()
        return run_task(task, reading.config, recorder.writer, should_stop), recorder

    return run


def losses(recorder: Recorder) -> list[float]:
    return [metric["loss"] for metric in recorder.of("metric")]


# What a step minimises


@pytest.mark.parametrize("beta", [0.05, 0.5])
def test_full_training_begins_with_a_sigmoid_loss_of_ln_2_whatever_beta(run: Run, beta: float) -> None:
    _, recorder = run("dpo", beta=beta, max_steps=2)
    assert losses(recorder)[0] == pytest.approx(math.log(2), abs=1e-6)
    first = recorder.of("metric")[0]
    assert first["rewards/margins"] == pytest.approx(0, abs=1e-6)
    assert "ppl" not in first


def test_the_reference_of_lora_is_the_base_model_exactly(run: Run) -> None:
    _, recorder = run("dpo", lora=True, max_steps=1)
    metric = recorder.of("metric")[0]
    assert (metric["rewards/chosen"], metric["rewards/rejected"]) == (0.0, 0.0)
    assert metric["loss"] == pytest.approx(math.log(2), abs=1e-7)


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_micro_batches_of_a_step_change_nothing(run: Run, loss_type: str) -> None:
    common = {"loss_type": loss_type, "max_steps": 3, "max_seq_len": 64, "sft_loss_ratio": 0.5}
    _, whole = run("dpo", output="whole", per_device_train_batch_size=4, **common)
    _, split = run(
        "dpo", output="split", per_device_train_batch_size=1, gradient_accumulation_steps=4, **common
    )
    assert losses(split) == pytest.approx(losses(whole), rel=1e-5)
    norms = [[metric["grad_norm"] for metric in recorder.of("metric")] for recorder in (split, whole)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    for name in ("rewards/margins", "logps/chosen", "sft_loss"):
        found, expected = ([metric[name] for metric in r.of("metric")] for r in (split, whole))
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_micro_batches_of_a_kto_step_share_one_kl_term(run: Run, tmp_path: Path) -> None:
    # Where nearly everything is desirable, the policy comes to like what is mismatched too.
    records = [judged(number) | {"sort": [int(number > 0)]} for number in range(12)]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "train.jsonl").write_text(lines, encoding="utf-8")
    common = {"max_steps": 4, "max_seq_len": 64, "train_dataset_path": str(tmp_path / "train.jsonl")}
    _, whole = run("kto", output="whole", per_device_train_batch_size=4, **common)
    _, split = run(
        "kto", output="split", per_device_train_batch_size=1, gradient_accumulation_steps=4, **common
    )
    assert losses(split) == pytest.approx(losses(whole), rel=1e-5)
    kls = [[metric["kl"] for metric in recorder.of("metric")] for recorder in (split, whole)]
    assert kls[0] == pytest.approx(kls[1], abs=1e-5)
    assert max(kls[1]) > 0


def test_kto_begins_where_policy_and_reference_agree(run: Run) -> None:
    _, recorder = run("kto", max_steps=1)
    metric = recorder.of("metric")[0]
    assert metric["loss"] == pytest.approx(0.5, abs=1e-6)
    assert metric["kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("task", ["dpo", "kto"])
@pytest.mark.parametrize("lora", [True, False])
def test_training_prefers_the_responses_that_were_judged_better(run: Run, task: str, lora: bool) -> None:
    _, recorder = run(task, lora=lora, num_train_epochs=12, learning_rate=5e-3)
    last = recorder.of("metric")[-1]
    assert last["rewards/chosen"] > 0 > last["rewards/rejected"]
    if task == "dpo":
        assert last["rewards/accuracies"] == 1.0


# The reference


def test_a_reference_computed_beforehand_changes_nothing(run: Run, tmp_path: Path) -> None:
    for task in ("dpo", "kto"):
        _, copied = run(task, output=f"{task}-copied")
        _, known = run(task, output=f"{task}-known", precompute_ref_log_probs=True)
        assert losses(known) == pytest.approx(losses(copied), rel=1e-5)
        files = list((tmp_path / f"{task}-known" / ".reference_log_probabilities").iterdir())
        assert len(files) == 1
        # 12 responses to each of which kto adds a mismatched one, and those of the dev data are not wanted.
        assert len(load_file(files[0])["values"]) == 24


def test_a_reference_computed_beforehand_is_read_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = run("dpo", precompute_ref_log_probs=True)

    def refuse(*_: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("trainer.loop.reference_cache.log_probability_passes", refuse)
    _, second = run("dpo", precompute_ref_log_probs=True, overwrite_output_dir=True)
    assert losses(second) == losses(first)
    with pytest.raises(AssertionError, match="computed again"):
        run("dpo", precompute_ref_log_probs=True, max_seq_len=24, max_prompt_len=12)


def test_a_reference_computed_beforehand_is_computed_again_when_its_file_is_damaged(
    run: Run, tmp_path: Path
) -> None:
    _, first = run("dpo", precompute_ref_log_probs=True)
    (file,) = (tmp_path / "output" / ".reference_log_probabilities").iterdir()
    whole = load_file(file)
    fewer = {"keys": whole["keys"][:-1], "values": whole["values"][:-1]}
    other = {**whole, "values": whole["values"] + np.float32(1)}
    for stored in (b"", file.read_bytes()[:-1], save(fewer), save(whole | fewer), save(other)):
        file.write_bytes(stored)
        _, again = run("dpo", precompute_ref_log_probs=True, overwrite_output_dir=True)
        assert losses(again) == losses(first)
        assert load_file(file)["values"].tolist() == whole["values"].tolist()


def test_a_reference_computed_beforehand_is_that_of_the_present_weights(tmp_path: Path) -> None:
    """Also where a file's size and time are those of the file before it, as after unpacking archives."""
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"before")
    before, times = model_fingerprint(tmp_path), weights.stat()
    assert model_fingerprint(tmp_path) == before
    weights.write_bytes(b"behind")
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert model_fingerprint(tmp_path) != before


def test_a_reference_may_follow_the_policy(run: Run) -> None:
    _, fixed = run("dpo", output="fixed", max_steps=4, max_seq_len=64)
    _, following = run("dpo", output="following", max_steps=4, max_seq_len=64, ref_model_update_steps=2)
    assert losses(following)[:2] == losses(fixed)[:2]
    assert losses(following)[2] == pytest.approx(math.log(2), abs=1e-6)
    assert losses(fixed)[2] < math.log(2) - 1e-4


def test_without_a_reference_there_is_no_second_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("loaded a second model")

    monkeypatch.setattr("trainer.loop.align.load_model", refuse)
    _, recorder = run("dpo", loss_type="simpo", max_steps=1)
    assert math.isfinite(losses(recorder)[0])
    run("dpo", output="lora", lora=True, max_steps=1)


# Evaluation, checkpoints and the end


@pytest.mark.parametrize(("task", "metric"), [("dpo", "rewards/accuracies"), ("kto", "rewards/margins")])
def test_the_best_model_is_chosen_by_any_metric_of_the_task(run: Run, task: str, metric: str) -> None:
    result, recorder = run(
        task,
        metric_for_best_model=metric,
        load_best_model_at_end=True,
        evaluation_strategy="steps",
        save_strategy="steps",
        eval_steps=1,
        save_steps=1,
        max_steps=4,
        max_seq_len=64,
    )
    found = [evaluation[f"eval_{metric}"] for evaluation in recorder.of("eval")]
    assert result["metrics"]["best_metric"] == max(found)
    assert f"eval_{metric}" in result["metrics"]
    assert {"eval_loss", "eval_rewards/chosen", "eval_rewards/rejected"} <= recorder.of("eval")[0].keys()


def test_a_metric_that_the_dev_data_cannot_give_is_refused_before_the_model_is_loaded(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.loop.task.starting_model", None)
    lines = [json.dumps(judged(number)) + "\n" for number in (1, 3)]
    (tmp_path / "dev.jsonl").write_text("".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match="the dev data has no undesirable response"):
        run(
            "kto",
            dev_dataset_path=str(tmp_path / "dev.jsonl"),
            evaluation_strategy="epoch",
            metric_for_best_model="rewards/margins",
        )


def test_evaluation_does_not_depend_on_its_batches(run: Run) -> None:
    for task, more in (("dpo", {"loss_type": "kto_pair"}), ("kto", {})):
        common = {"max_steps": 1, "do_eval": True, "evaluation_strategy": "steps", "max_seq_len": 64, **more}
        _, one = run(task, output=f"{task}-one", per_device_eval_batch_size=1, **common)
        _, all_ = run(task, output=f"{task}-all", per_device_eval_batch_size=8, **common)
        first, second = one.of("eval")[-1], all_.of("eval")[-1]
        for name in ("eval_loss", "eval_rewards/margins"):
            assert first[name] == pytest.approx(second[name], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "more",
    [
        {"task": "dpo"},
        {"task": "dpo", "lora": True},
        {"task": "kto"},
        {"task": "dpo", "ref_model_update_steps": 3},
        {"task": "dpo", "precompute_ref_log_probs": True},
        {"task": "dpo", "lazy": True},
    ],
    ids=lambda more: " ".join(more),
)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(run: Run, tmp_path: Path, more: dict[str, Any]) -> None:
    task = more.pop("task")
    common = {"max_steps": 6, "max_seq_len": 64, "save_strategy": "no", **more}
    _, whole = run(task, output="whole", **common)

    asked = iter([False, False, False, False, True])
    stopped, first = run(task, output="parts", should_stop=lambda: next(asked), **common)
    assert stopped["stopped"]
    assert Path(stopped["path"]).name == "checkpoint-4"
    _, second = run(task, output="parts", **common)
    assert losses(first) + losses(second) == losses(whole)
    file = "adapter_model.safetensors" if more.get("lora") else "model.safetensors"
    assert tensors_of(tmp_path / "parts", file) == tensors_of(tmp_path / "whole", file)


def test_a_run_that_goes_on_with_another_loss_is_warned_of(run: Run) -> None:
    common = {"max_seq_len": 64, "save_strategy": "steps", "save_steps": 1}
    run("dpo", max_steps=1, **common)
    _, recorder = run("dpo", max_steps=2, beta=0.3, loss_type="hinge", **common)
    (warning,) = [event for event in recorder.of("warning") if "other settings" in event["msg"]]
    assert "beta (0.1 before, 0.3 now)" in warning["msg"]
    assert "loss_type (sigmoid before, hinge now)" in warning["msg"]


def test_bloom_is_trained_like_gemma(run: Run, tiny_bloom: Path) -> None:
    for task in ("dpo", "kto"):
        _, recorder = run(
            task,
            output=task,
            model_name_or_path=str(tiny_bloom),
            lora=True,
            num_train_epochs=12,
            learning_rate=5e-3,
        )
        last = recorder.of("metric")[-1]
        assert last["rewards/margins"] > 0
        assert np.isfinite(last["loss"])
