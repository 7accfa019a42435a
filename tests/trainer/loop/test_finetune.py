"""The finetune task in this process: what a run computes, tells, saves and goes on from."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.training import PAIRS, Recorder, tensors_of, write_records
from trainer.config import ConfigError, DataError, FinetuneConfig
from trainer.loop.step import NonFiniteLossError
from trainer.run import run_task
from trainer.tools.tiny_model import build_tiny_model

MakeConfig = Callable[..., FinetuneConfig]


def never() -> bool:
    return False


class StopAfter:
    """Asks to stop once the recorder has seen so many events of a kind."""

    def __init__(self, recorder: Recorder, kind: str, count: int) -> None:
        self._recorder, self._kind, self._count = recorder, kind, count

    def __call__(self) -> bool:
        return len(self._recorder.of(self._kind)) >= self._count


def run(config: FinetuneConfig, should_stop: Callable[[], bool] = never) -> tuple[dict[str, Any], Recorder]:
    recorder = Recorder()
    return run_task("finetune", config, recorder.writer, should_stop), recorder


def curve(recorder: Recorder) -> list[tuple[int, float, float, float]]:
    """Step, loss, learning rate and gradient norm of every logged line."""
    return [(m["step"], m["loss"], m["learning_rate"], m["grad_norm"]) for m in recorder.of("metric")]


def stored(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "trainer_state.json").read_text(encoding="utf-8"))


def without_times(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    timed = ("runtime", "per_second")
    return [{k: v for k, v in entry.items() if not k.endswith(timed)} for entry in history]


def checkpoints(output: Path) -> list[str]:
    return sorted(path.name for path in output.glob("checkpoint-*"))


# What a run tells


def test_a_run_learns_and_its_result_is_a_model_directory(make_config: MakeConfig) -> None:
    config = make_config(num_train_epochs=8, learning_rate=5e-3, save_strategy="no")
    result, recorder = run(config)
    losses = [metric["loss"] for metric in recorder.of("metric")]
    assert losses[-1] < 0.7 * losses[0]
    assert result["path"] == config.output_dir
    names = {path.name for path in Path(config.output_dir).iterdir()}
    assert names >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.model",
        "tokenizer_config.json",
        "train_results.json",
        "all_results.json",
        "trainer_state.json",
    }
    assert result["metrics"]["train_loss"] == pytest.approx(np.mean(losses))


def test_events_come_in_the_order_progress_log_evaluate_save_result(make_config: MakeConfig) -> None:
    _, recorder = run(make_config(evaluation_strategy="epoch", save_strategy="epoch", logging_steps=4))
    assert [event["type"] for event in recorder.events] == [
        "progress",
        *("metric", "progress", "eval", "checkpoint") * 2,
        "result",
    ]
    first, last = recorder.of("progress")[0], recorder.of("progress")[-1]
    assert (first["step"], first["total_steps"], first["total_epochs"]) == (0, 8, 2.0)
    assert (last["step"], last["epoch"], last["eta_s"]) == (8, 2.0, 0.0)


def test_a_metric_has_every_field_that_is_promised(make_config: MakeConfig) -> None:
    _, recorder = run(make_config(max_steps=2))
    metric = recorder.of("metric")[0]
    assert metric.keys() >= {
        *("t", "step", "epoch", "loss", "ppl", "learning_rate", "grad_norm", "tokens", "tokens_per_second")
    }
    assert metric["ppl"] == pytest.approx(math.exp(metric["loss"]))
    assert recorder.of("metric")[1]["tokens"] > metric["tokens"] > 0
    assert metric["peak_memory_bytes"] >= metric["memory_bytes"] > 1 << 20


def test_a_logged_loss_is_the_mean_of_the_steps_since_the_last_line(make_config: MakeConfig) -> None:
    _, every = run(make_config(output_dir="every"))
    _, third = run(make_config(output_dir="third", logging_steps=3))
    losses = [metric["loss"] for metric in every.of("metric")]
    expected = [np.mean(losses[:3]), np.mean(losses[3:6]), np.mean(losses[6:])]
    assert [metric["loss"] for metric in third.of("metric")] == pytest.approx(expected)


def test_the_learning_rate_that_is_logged_is_the_one_the_step_used(make_config: MakeConfig) -> None:
    _, recorder = run(make_config(warmup_steps=2, learning_rate=1e-3))
    rates = [metric["learning_rate"] for metric in recorder.of("metric")]
    assert rates == pytest.approx([0, 5e-4, *(1e-3 * (8 - step) / 6 for step in range(2, 8))])


def test_results_are_written_per_split_and_together(make_config: MakeConfig) -> None:
    config = make_config(evaluation_strategy="epoch")
    result, recorder = run(config)
    output = Path(config.output_dir)
    read = {
        name: json.loads((output / f"{name}_results.json").read_text()) for name in ("train", "eval", "all")
    }
    assert read["all"] == {**read["train"], **read["eval"]} == result["metrics"]
    assert read["eval"]["eval_loss"] == recorder.of("eval")[-1]["eval_loss"]
    assert stored(output)["log_history"][-1]["eval_loss"] == read["eval"]["eval_loss"]


def test_two_runs_with_one_seed_are_the_same_and_another_seed_is_not(make_config: MakeConfig) -> None:
    first, one = run(make_config(output_dir="one"))
    second, two = run(make_config(output_dir="two"))
    other, three = run(make_config(output_dir="three", seed=8))
    assert curve(one) == curve(two) != curve(three)
    assert tensors_of(Path(first["path"])) == tensors_of(Path(second["path"]))
    assert tensors_of(Path(first["path"])) != tensors_of(Path(other["path"]))


def test_special_tokens_in_the_texts_of_records_are_told_where_a_template_lets_them_act(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
    write_records(tmp_path / "data" / "train.json", [("a", "b"), ("a<eos>b", "c")])
    arguments = {"dataset_name_or_path": str(tmp_path / "data"), "max_steps": 1}
    _, told = run(make_config(output_dir="told", chat_template=str(template), **arguments))
    warnings = [event["msg"] for event in told.of("warning")]
    assert any("1 of 2 records have the text of a special token" in text for text in warnings)
    assert any("train.json line 2: <eos> in src" in text for text in warnings)
    _, plain = run(make_config(output_dir="plain", **arguments))
    assert not any("special token" in event["msg"] for event in plain.of("warning"))


def test_data_seed_decides_the_order_of_the_data_and_nothing_else(
    make_config: MakeConfig, tiny_bloom: Path
) -> None:
    def of(output_dir: str, **arguments: Any) -> list[tuple[int, float, float, float]]:
        return curve(run(make_config(output_dir=output_dir, **arguments))[1])

    plain = of("plain", seed=8)
    assert of("named", seed=7, data_seed=8) == plain  # nothing else is random in this model
    assert of("other", seed=8, data_seed=7) != plain
    dropout = {"model_name_or_path": str(tiny_bloom), "data_seed": 8}
    assert of("one", seed=7, **dropout) != of("two", seed=8, **dropout)


def test_accumulation_changes_memory_and_not_the_result(make_config: MakeConfig) -> None:
    _, split = run(make_config(output_dir="split"))
    _, whole = run(
        make_config(output_dir="whole", per_device_train_batch_size=4, gradient_accumulation_steps=1)
    )
    assert np.array(curve(split)) == pytest.approx(np.array(curve(whole)), rel=1e-3)
    assert curve(split)[0] == pytest.approx(curve(whole)[0], rel=1e-5)


def test_half_precision_on_cpu_is_an_fp32_run_with_a_warning(make_config: MakeConfig) -> None:
    _, plain = run(make_config(output_dir="plain"))
    _, half = run(make_config(output_dir="half", bf16=True, fp16_opt_level="O2"))
    assert curve(half) == curve(plain)
    assert [event["loc"] for event in half.of("warning")] == [["bf16"]]


# Checkpoints: limits and the best one


def test_only_the_newest_checkpoints_are_kept(make_config: MakeConfig) -> None:
    config = make_config(save_steps=2, save_total_limit=2)
    _, recorder = run(config)
    assert checkpoints(Path(config.output_dir)) == ["checkpoint-6", "checkpoint-8"]
    assert [event["name"] for event in recorder.of("checkpoint_removed")] == ["checkpoint-2", "checkpoint-4"]


def worsening(make_config: MakeConfig, **changes: Any) -> FinetuneConfig:
    """A run that gets worse with every step, for its learning rate rises without end."""
    return make_config(
        learning_rate=300,
        warmup_steps=1000,
        max_grad_norm=0,
        evaluation_strategy="steps",
        eval_steps=2,
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        **changes,
    )


def test_the_best_model_is_the_result_and_survives_the_limit(make_config: MakeConfig) -> None:
    config = worsening(make_config, save_total_limit=1)
    result, recorder = run(config)
    losses = {event["step"]: event["eval_loss"] for event in recorder.of("eval")}
    best = min(losses, key=lambda step: losses[step])
    assert best == 2, "every later step is meant to make it worse"
    output = Path(config.output_dir)
    assert checkpoints(output) == [f"checkpoint-{best}", "checkpoint-8"]
    assert tensors_of(output) == tensors_of(output / f"checkpoint-{best}")
    assert result["metrics"]["best_model_checkpoint"] == f"checkpoint-{best}"
    assert result["metrics"]["best_metric"] == result["metrics"]["eval_loss"] == losses[best]
    announced = {event["step"]: event["best"] for event in recorder.of("checkpoint")}
    assert announced[best]
    assert not announced[8]


def test_greater_is_better_for_accuracy(make_config: MakeConfig) -> None:
    config = make_config(
        num_train_epochs=6,
        learning_rate=5e-3,
        evaluation_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
    )
    result, recorder = run(config)
    assert result["metrics"]["best_metric"] == max(event["eval_accuracy"] for event in recorder.of("eval"))


def test_a_best_checkpoint_that_is_gone_is_a_warning_and_the_last_model_the_result(
    make_config: MakeConfig,
) -> None:
    config = worsening(make_config)
    run(config)
    output = Path(config.output_dir)
    (output / stored(output)["best_model_checkpoint"] / "model.safetensors").write_bytes(b"")
    _, recorder = run(config)
    assert tensors_of(output) == tensors_of(output / "checkpoint-8")
    assert any("not the best one" in event["msg"] for event in recorder.of("warning"))


def test_no_strategy_saves_no_checkpoint(make_config: MakeConfig) -> None:
    config = make_config(save_strategy="no")
    run(config)
    assert checkpoints(Path(config.output_dir)) == []


# Stopping and going on


@pytest.mark.parametrize("steps", [0, 1, 4, 5])
def test_a_run_that_was_stopped_and_resumed_is_one_that_was_not(make_config: MakeConfig, steps: int) -> None:
    changes = {"evaluation_strategy": "steps", "eval_steps": 4, "save_steps": 3, "logging_steps": 1}
    whole, uninterrupted = run(make_config(output_dir="whole", **changes))
    config = make_config(output_dir="parts", **changes)
    recorder = Recorder()
    stopped = run_task("finetune", config, recorder.writer, StopAfter(recorder, "metric", steps))
    assert stopped["stopped"]
    assert Path(stopped["path"]).name == f"checkpoint-{steps}"
    assert recorder.of("checkpoint")[-1]["path"] == stopped["path"]
    result, rest = run(config)
    assert not result["stopped"]
    assert rest.of("progress")[0]["step"] == steps
    assert curve(recorder) + curve(rest) == curve(uninterrupted)
    paths = [Path(result["path"]), Path(whole["path"])]
    assert tensors_of(paths[0]) == tensors_of(paths[1])
    last = [path / "checkpoint-8" for path in paths]
    assert tensors_of(last[0], "optimizer.safetensors") == tensors_of(last[1], "optimizer.safetensors")
    histories = [without_times(stored(path)["log_history"]) for path in paths]
    assert histories[0] == histories[1]


def test_a_stop_during_an_evaluation_leaves_it_to_the_resumed_run(make_config: MakeConfig) -> None:
    changes = {
        "evaluation_strategy": "steps",
        "eval_steps": 4,
        "save_steps": 4,
        "load_best_model_at_end": True,
    }
    whole, uninterrupted = run(make_config(output_dir="whole", **changes))
    config = make_config(output_dir="parts", **changes)
    recorder = Recorder()
    result = run_task("finetune", config, recorder.writer, StopAfter(recorder, "metric", 4))
    assert Path(result["path"]).name == "checkpoint-4"
    assert not recorder.of("eval")
    result, rest = run(config)
    assert [event["step"] for event in rest.of("eval")] == [4, 8]
    assert result["metrics"]["best_metric"] == whole["metrics"]["best_metric"]
    assert [e["eval_loss"] for e in rest.of("eval")] == [e["eval_loss"] for e in uninterrupted.of("eval")]


def test_a_broken_newest_checkpoint_is_passed_over_with_a_warning(make_config: MakeConfig) -> None:
    config = make_config(save_steps=3)
    first, _ = run(config)
    expected = tensors_of(Path(first["path"]))
    (Path(config.output_dir) / "checkpoint-8" / "optimizer.safetensors").write_bytes(b"")
    (Path(config.output_dir) / "checkpoint-6" / "trainer_state.json").unlink()
    result, recorder = run(config)
    assert recorder.of("progress")[0]["step"] == 3
    assert [event["loc"][-1] for event in recorder.of("warning")] == ["checkpoint-8", "checkpoint-6"]
    assert tensors_of(Path(result["path"])) == expected


def test_a_finished_run_says_so_and_still_has_a_result(make_config: MakeConfig) -> None:
    config = make_config()
    first, _ = run(config)
    expected = tensors_of(Path(first["path"]))
    result, recorder = run(config)
    assert any("already at step 8 of 8" in event["msg"] for event in recorder.of("warning"))
    assert not recorder.of("metric")
    assert result["path"] == first["path"]
    assert tensors_of(Path(result["path"])) == expected


def test_more_epochs_take_a_finished_run_further(make_config: MakeConfig) -> None:
    run(make_config())
    _, recorder = run(make_config(num_train_epochs=3))
    assert [metric["step"] for metric in recorder.of("metric")] == [9, 10, 11, 12]
    assert any("num_train_epochs (2.0 before, 3.0 now)" in event["msg"] for event in recorder.of("warning"))


def test_a_named_checkpoint_comes_before_the_newest_one(make_config: MakeConfig) -> None:
    first, _ = run(make_config(output_dir="first", save_steps=2))
    start = Path(first["path"]) / "checkpoint-4"
    result, recorder = run(make_config(output_dir="second", resume_from_checkpoint=str(start)))
    assert recorder.of("progress")[0]["step"] == 4
    assert tensors_of(Path(result["path"])) == tensors_of(Path(first["path"]))


def test_a_retry_goes_on_from_what_a_run_with_a_named_checkpoint_has_saved(make_config: MakeConfig) -> None:
    first, _ = run(make_config(output_dir="first", save_steps=2))
    config = make_config(
        output_dir="second", save_steps=2, resume_from_checkpoint=str(Path(first["path"]) / "checkpoint-2")
    )
    recorder = Recorder()
    run_task("finetune", config, recorder.writer, StopAfter(recorder, "checkpoint", 1))
    _, rest = run(config)
    assert rest.of("progress")[0]["step"] == 4


def test_a_named_checkpoint_that_is_not_whole_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a whole checkpoint: there is no such directory"):
        run(make_config(resume_from_checkpoint=str(tmp_path / "checkpoint-5")))


def test_a_run_that_goes_on_with_other_steps_is_warned_of_their_rows(make_config: MakeConfig) -> None:
    config = make_config(max_steps=2)
    run(config)
    batch, accumulation = config.per_device_train_batch_size, config.gradient_accumulation_steps
    _, other = run(make_config(max_steps=3, gradient_accumulation_steps=3 * accumulation))
    before, now = batch * accumulation, 3 * batch * accumulation
    assert any(
        f"rows in a step ({before} before, {now} now)" in event["msg"] for event in other.of("warning")
    )


def test_rows_dealt_out_otherwise_are_the_same_steps(make_config: MakeConfig) -> None:
    run(make_config(max_steps=2, per_device_train_batch_size=4, gradient_accumulation_steps=1))
    _, other = run(make_config(max_steps=2, per_device_train_batch_size=1, gradient_accumulation_steps=4))
    assert not any("other settings" in event["msg"] for event in other.of("warning"))


def test_a_checkpoint_of_another_model_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    run(make_config(max_steps=1))
    deeper = build_tiny_model("gemma", tmp_path / "deeper", num_hidden_layers=3)
    with pytest.raises(ConfigError, match=r"of another model than .*: .*num_hidden_layers 2 there, 3 here"):
        run(make_config(model_name_or_path=str(deeper), max_steps=2))


def test_overwrite_output_dir_starts_over(make_config: MakeConfig) -> None:
    run(make_config(save_steps=2))
    config = make_config(overwrite_output_dir=True, max_steps=3, save_steps=2)
    _, recorder = run(config)
    assert recorder.of("progress")[0]["step"] == 0
    assert checkpoints(Path(config.output_dir)) == ["checkpoint-2", "checkpoint-3"]


def test_a_checkpoint_without_optimizer_is_resumed_only_with_a_fresh_one(make_config: MakeConfig) -> None:
    run(make_config(ignore_save_lr_and_optim=True, max_steps=2))
    with pytest.raises(ConfigError, match="saved without optimizer state"):
        run(make_config(max_steps=4))
    _, recorder = run(make_config(max_steps=4, ignore_load_lr_and_optim=True))
    assert [metric["step"] for metric in recorder.of("metric")] == [3, 4]
    assert recorder.of("metric")[0]["learning_rate"] == 1e-3


def test_ignore_data_skip_starts_the_epoch_over_and_keeps_the_number_of_steps(
    make_config: MakeConfig,
) -> None:
    run(make_config(max_steps=2))
    _, recorder = run(make_config(max_steps=4, ignore_data_skip=True))
    assert [metric["epoch"] for metric in recorder.of("metric")] == pytest.approx([4 / 14, 8 / 14])


# What ends a run


def test_evaluation_alone_writes_results_and_no_model(make_config: MakeConfig) -> None:
    config = make_config(do_train=False, do_eval=True)
    result, recorder = run(config)
    assert [event["type"] for event in recorder.events] == ["eval", "result"]
    assert result["metrics"].keys() >= {"eval_loss", "eval_accuracy", "eval_ppl"}
    assert {path.name for path in Path(config.output_dir).iterdir()} == {
        "eval_results.json",
        "all_results.json",
    }


def test_a_model_with_broken_weights_ends_as_nan_loss_and_saves_nothing(
    make_config: MakeConfig, tiny_gemma: Path, tmp_path: Path
) -> None:
    model = tmp_path / "broken"
    model.mkdir()
    for path in tiny_gemma.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    tensors = load_file(model / "model.safetensors")
    tensors["model.embed_tokens.weight"][5] = np.nan
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    config = make_config(model_name_or_path=str(model), save_steps=1)
    with pytest.raises(NonFiniteLossError, match="at step"):
        run(config)
    assert not (Path(config.output_dir) / "model.safetensors").exists()


def test_data_with_nothing_to_learn_is_refused_before_training(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    write_records(tmp_path / "data" / "train.json", [("a source that is much too long", "x")])
    with pytest.raises(DataError, match="nothing to learn"):
        run(make_config(dataset_name_or_path=str(tmp_path / "data"), src_length=4, max_length=4))


def test_conversations_are_trained(make_config: MakeConfig, tmp_path: Path) -> None:
    turns = [([src, "And then?"], [tgt, "More."]) for src, tgt in PAIRS[:4]]
    write_records(tmp_path / "data" / "train.json", turns)
    result, _ = run(make_config(dataset_name_or_path=str(tmp_path / "data"), num_train_epochs=1))
    assert math.isfinite(result["metrics"]["train_loss"])


def test_a_task_that_does_not_exist_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(ConfigError, match="not available"):
        run_task("distill", make_config(), Recorder().writer, never)


# Fused matrices


SWITCHES = {"fuse_attention_qkv": True, "fuse_attention_ffn": True}


def test_fused_matrices_change_neither_the_curve_nor_the_names_on_disk(make_config: MakeConfig) -> None:
    apart, one = run(make_config(output_dir="apart"))
    fused, two = run(make_config(output_dir="fused", **SWITCHES))
    assert np.array(curve(two)) == pytest.approx(np.array(curve(one)), rel=1e-4)
    weights, expected = (load_file(Path(r["path"]) / "model.safetensors") for r in (fused, apart))
    assert {n: w.shape for n, w in weights.items()} == {n: w.shape for n, w in expected.items()}
    for name, weight in expected.items():
        np.testing.assert_allclose(weights[name], weight, atol=2e-4)


@pytest.mark.parametrize("first", [SWITCHES, {}], ids=["fused first", "fused later"])
def test_a_run_goes_on_fused_or_apart_from_either_kind_of_checkpoint(
    make_config: MakeConfig, first: dict[str, bool]
) -> None:
    second = dict.fromkeys(SWITCHES, not first)
    shared = {"save_strategy": "epoch"}
    whole, one = run(make_config(output_dir="whole", **shared))
    config = make_config(output_dir="changed", **shared, **first)
    recorder = Recorder()
    run_task("finetune", config, recorder.writer, StopAfter(recorder, "checkpoint", 1))
    _, two = run(make_config(output_dir="changed", **shared, **second))
    assert [metric["step"] for metric in two.of("metric")] == [5, 6, 7, 8]
    assert np.array(curve(two)) == pytest.approx(np.array(curve(one)[4:]), rel=1e-3)
    weights, expected = (
        load_file(Path(path) / "model.safetensors") for path in (config.output_dir, whole["path"])
    )
    for name, weight in expected.items():
        np.testing.assert_allclose(weights[name], weight, atol=5e-4)
