"""Adapters in task finetune: what a run saves, goes on from and refuses; and task evaluate on them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.training import Recorder, tensors_of
from trainer import load_model, load_tokenizer
from trainer.config import ConfigError, FinetuneConfig, read_config
from trainer.config.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from trainer.config.preflight import check_job
from trainer.run import run_task

MakeConfig = Callable[..., FinetuneConfig]

LORA = {"lora": True, "lora_rank": 4, "lora_plus_scale": 2.0, "learning_rate": 1e-2}
PREFIX = {"prefix_tuning": True, "num_prefix_tokens": 6, "learning_rate": 3e-2}
PROJECTED = PREFIX | {"prefix_projection": True, "prefix_projection_hidden_size": 10}
METHODS = pytest.mark.parametrize("method", [LORA, PREFIX, PROJECTED], ids=["lora", "prefix", "projected"])


def run(
    config: FinetuneConfig, should_stop: Callable[[], bool] = lambda: False
) -> tuple[dict[str, Any], Recorder]:
    recorder = Recorder()
    return run_task("finetune", config, recorder.writer, should_stop), recorder


def losses(recorder: Recorder) -> list[float]:
    return [metric["loss"] for metric in recorder.of("metric")]


@METHODS
@pytest.mark.parametrize("family", ["gemma", "bloom"])
def test_a_run_learns_and_saves_an_adapter_and_nothing_of_the_base(
    method: dict[str, Any], family: str, make_config: MakeConfig, request: pytest.FixtureRequest
) -> None:
    base: Path = request.getfixturevalue(f"tiny_{family}")
    before = tensors_of(base)
    config = make_config(**method, model_name_or_path=str(base), num_train_epochs=4)
    result, recorder = run(config)
    curve = losses(recorder)
    assert np.mean(curve[-4:]) < np.mean(curve[:4])
    output = Path(config.output_dir)
    names = {path.name for path in output.iterdir() if path.is_file()}
    assert {ADAPTER_CONFIG, ADAPTER_WEIGHTS, "tokenizer_config.json"} <= names
    assert not {"config.json", "model.safetensors"} & names
    assert tensors_of(base) == before
    settings = json.loads((output / ADAPTER_CONFIG).read_text())
    assert settings["base_model_name_or_path"] == str(base)
    model = load_model(output)
    assert model.adapter is not None
    metrics = result["metrics"]
    trained = sum(weight.parameter.size for weight in model.adapter.weights().values())
    assert metrics["trainable_parameters"] == trained
    assert metrics["trainable_parameters"] < metrics["parameters"]
    assert load_tokenizer(output).encode("a")


@METHODS
def test_a_checkpoint_holds_the_adapter_and_its_optimizer_state_only(
    method: dict[str, Any], make_config: MakeConfig
) -> None:
    config = make_config(**method, save_steps=4)
    run(config)
    checkpoint = Path(config.output_dir) / "checkpoint-4"
    assert not (checkpoint / "model.safetensors").exists()
    model = load_model(checkpoint)
    state = load_file(checkpoint / "optimizer.safetensors")
    assert {name.rpartition("/")[0] for name in state} == model.trained_weights().keys()
    for name, weight in model.trained_weights().items():
        assert list(state[f"{name}/moment1"].shape) == weight.disk_shape


@METHODS
def test_a_run_that_was_stopped_and_resumed_is_one_that_was_not(
    method: dict[str, Any], make_config: MakeConfig
) -> None:
    dropout = {"lora_dropout": 0.2} if "lora" in method else {}
    straight = make_config(**method, **dropout, output_dir="straight")
    _, whole = run(straight)
    broken = make_config(**method, **dropout, output_dir="broken")
    recorder = Recorder()
    stopped = run_task("finetune", broken, recorder.writer, lambda: len(recorder.of("metric")) >= 3)
    assert stopped["stopped"]
    _, rest = run(broken)
    assert losses(recorder) + losses(rest) == losses(whole)
    folders = Path(straight.output_dir), Path(broken.output_dir)
    assert tensors_of(folders[0], ADAPTER_WEIGHTS) == tensors_of(folders[1], ADAPTER_WEIGHTS)


@METHODS
def test_the_best_adapter_is_the_result(method: dict[str, Any], make_config: MakeConfig) -> None:
    strategies = {"evaluation_strategy": "steps", "save_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    config = make_config(**(method | {"learning_rate": 0.3}), **strategies, load_best_model_at_end=True)
    result, recorder = run(config)
    evaluations = {event["step"]: event["eval_loss"] for event in recorder.of("eval")}
    best = min(evaluations, key=lambda step: evaluations[step])
    assert result["metrics"]["best_model_checkpoint"] == f"checkpoint-{best}"
    output = Path(config.output_dir)
    assert tensors_of(output, ADAPTER_WEIGHTS) == tensors_of(output / f"checkpoint-{best}", ADAPTER_WEIGHTS)
    assert result["metrics"]["eval_loss"] == evaluations[best]


@pytest.mark.parametrize(("method", "path"), [(LORA, "lora_path"), (PREFIX, "prefix_path")])
def test_a_saved_adapter_is_trained_on(method: dict[str, Any], path: str, make_config: MakeConfig) -> None:
    first = make_config(**method, output_dir="first")
    _, learned = run(first)
    config = make_config(**{**method, "lora_rank": 8}, **{path: first.output_dir}, output_dir="second")
    checked = check_job(config, None)
    assert checked.problems == ()
    assert isinstance(checked.config, FinetuneConfig)
    assert checked.config.lora_rank == (4 if "lora" in method else 8)
    _, going_on = run(checked.config)
    assert losses(going_on)[0] < losses(learned)[0]
    shapes = [
        {name: tensor.shape for name, tensor in load_file(Path(c.output_dir) / ADAPTER_WEIGHTS).items()}
        for c in (first, config)
    ]
    assert shapes[0] == shapes[1]


def test_alpha_follows_the_rank_unless_it_is_given(make_config: MakeConfig) -> None:
    assert make_config(lora=True, lora_rank=64).lora_alpha == 128
    assert make_config(lora=True, lora_rank=64, rslora=True).lora_alpha == 4
    assert make_config(lora=True, lora_rank=8, lora_alpha=32).lora_alpha == 32
    plus = make_config(lora=True, rslora_plus=True)
    assert (plus.rslora, plus.lora_plus_scale, plus.lora_alpha) == (True, 4.0, 4)


def test_the_adapter_has_the_settings_of_the_config(make_config: MakeConfig) -> None:
    config = make_config(
        lora=True, lora_rank=8, lora_alpha=32, target_modules=["q_proj", "v_proj"], max_steps=1
    )
    run(config)
    settings = json.loads((Path(config.output_dir) / ADAPTER_CONFIG).read_text())
    assert (settings["r"], settings["lora_alpha"], settings["use_rslora"]) == (8, 32, False)
    assert settings["target_modules"] == ["q_proj", "v_proj"]
    model = load_model(config.output_dir)
    assert getattr(model.adapter, "settings").scale == 4.0  # noqa: B009 - adapters differ in their settings


def test_another_rank_does_not_go_on_from_a_checkpoint(make_config: MakeConfig) -> None:
    run(make_config(**LORA, save_steps=4))
    with pytest.raises(ConfigError, match=r"lora_rank: got 2, the checkpoint .* has 4"):
        run(make_config(**{**LORA, "lora_rank": 2}, num_train_epochs=3))


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        (LORA, {"target_modules": ["q_proj"]}, r"Set target_modules to \['down_proj', .*'v_proj'\]"),
        (PREFIX, {"num_prefix_tokens": 7}, "got 7, the checkpoint .* has 6"),
    ],
)
def test_other_layers_or_another_length_do_not_go_on_from_a_checkpoint(
    method: dict[str, Any], change: dict[str, Any], words: str, make_config: MakeConfig
) -> None:
    run(make_config(**method, save_steps=2, max_steps=2))
    with pytest.raises(ConfigError, match=words):
        run(make_config(**method | change, save_steps=2, max_steps=4))


def test_layers_may_be_named_in_another_way_when_a_run_goes_on(make_config: MakeConfig) -> None:
    run(make_config(**LORA, target_modules=["self_attn.q_proj"], save_steps=2, max_steps=2))
    run(make_config(**LORA, target_modules=["q_proj"], save_steps=2, max_steps=4))


@pytest.mark.parametrize(("before", "after"), [({}, LORA), (LORA, {}), (LORA, PREFIX)])
def test_a_checkpoint_of_another_method_is_refused(
    before: dict[str, Any], after: dict[str, Any], make_config: MakeConfig
) -> None:
    run(make_config(**before, max_steps=2, save_steps=2))
    with pytest.raises(ConfigError, match="and this run trains"):
        run(make_config(**after, max_steps=4))


def test_an_unknown_target_is_refused_with_the_layers_there_are(make_config: MakeConfig) -> None:
    with pytest.raises(ConfigError, match="target_modules: got wq"):
        run(make_config(lora=True, target_modules=["wq"]))


@METHODS
def test_evaluation_of_a_saved_adapter_gives_what_its_run_measured(
    method: dict[str, Any], make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(**method, evaluation_strategy="epoch", save_strategy="no")
    trained, _ = run(config)
    raw = config.resolved() | {"model_name_or_path": config.output_dir, "output_dir": str(tmp_path / "found")}
    raw["tokenizer_name_or_path"] = None
    reading = read_config("evaluate", raw)
    assert reading.config is not None, reading.problems
    assert ("do_train",) in [warning.loc for warning in reading.warnings]
    checked = check_job(reading.config, None)
    assert checked.problems == ()
    assert isinstance(checked.config, FinetuneConfig)
    assert checked.config.model_name_or_path == config.model_name_or_path
    recorder = Recorder()
    result = run_task("evaluate", checked.config, recorder.writer, lambda: False)
    for name in ("eval_loss", "eval_accuracy", "eval_ppl"):
        assert result["metrics"][name] == pytest.approx(trained["metrics"][name], rel=1e-6)
    stored = json.loads((tmp_path / "found" / "eval_results.json").read_text())
    assert stored["eval_loss"] == result["metrics"]["eval_loss"]
    assert [event["type"] for event in recorder.events if event["type"] != "warning"][-2:] == [
        "eval",
        "result",
    ]
    assert not (tmp_path / "found" / ADAPTER_CONFIG).exists()


def test_a_whole_model_is_evaluated_too(make_config: MakeConfig, tmp_path: Path) -> None:
    raw = {
        name: value
        for name, value in make_config().resolved().items()
        if name in ("model_name_or_path", "dataset_name_or_path", "max_length", "src_length")
    }
    reading = read_config("evaluate", raw | {"output_dir": str(tmp_path / "found")})
    assert reading.config is not None, reading.problems
    assert reading.warnings == ()
    result = run_task("evaluate", reading.config, Recorder().writer, lambda: False)
    assert result["metrics"]["eval_loss"] > 0
