from collections.abc import Callable
from typing import Any

import pytest

from trainer.config import Reading, read_config

Read = Callable[..., Reading]
BY_STEPS = {"evaluation_strategy": "steps", "save_strategy": "steps"}
DPO = {"model_name_or_path": "m", "output_dir": "o", "do_train": True}
QUANTIZE = {"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o"}


@pytest.mark.parametrize(
    ("arguments", "name", "msg"),
    [
        ({"fp16": True, "bf16": True}, "fp16", "fp16 and bf16 are both true, expected at most one"),
        ({"fp16_opt_level": "O2"}, "fp16_opt_level", "got O2, expected fp16 or bf16 to be true with it"),
        ({"src_length": 2049}, "src_length", "src_length 2049 > max_length 2048, expected it to be smaller"),
        ({"do_train": False}, "do_train", "no do_* flag is true, so there is nothing to do"),
        (
            {"load_best_model_at_end": True, "evaluation_strategy": "epoch"},
            "load_best_model_at_end",
            "evaluation_strategy epoch and save_strategy steps differ, "
            "expected them to be equal when load_best_model_at_end is true",
        ),
        (
            {"load_best_model_at_end": True},
            "load_best_model_at_end",
            "load_best_model_at_end is true and evaluation_strategy is no, so no model is the best",
        ),
        (
            {"load_best_model_at_end": True, **BY_STEPS, "eval_steps": 300, "save_steps": 500},
            "save_steps",
            "save_steps 500 is not a multiple of eval_steps 300, "
            "expected so when load_best_model_at_end is true",
        ),
        (
            {"metric_for_best_model": "bleu4"},
            "metric_for_best_model",
            "got bleu4, expected one of the metrics of this job: loss, accuracy, ppl",
        ),
        (
            {"metric_for_best_model": "accuracy", "prediction_loss_only": True},
            "metric_for_best_model",
            "got accuracy, expected one of the metrics of this job: loss",
        ),
        ({"fp16_full_eval": True, "bf16_full_eval": True}, "fp16_full_eval", None),
        ({"lora": True, "prefix_tuning": True}, "prefix_tuning", None),
        ({"lazy": True}, "max_steps", "not set, expected a number of steps because lazy is true"),
        ({"lr_scheduler_type": "polynomial", "lr_end": 1.0}, "lr_end", None),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    read: Read, arguments: dict[str, Any], name: str, msg: str | None
) -> None:
    reading = read(**arguments)
    found = [problem for problem in reading.problems if problem.loc == (name,)]
    assert reading.config is None
    assert found, reading.problems
    assert all(problem.hint for problem in found)
    assert msg is None or msg in {problem.msg for problem in found}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"evaluation_strategy": "epoch", "save_strategy": "no"}, "Set save_strategy to epoch."),
        (
            {"evaluation_strategy": "no", "do_eval": True, "save_strategy": "epoch"},
            "Set save_strategy to steps, or evaluation_strategy to epoch.",
        ),
    ],
)
def test_unequal_strategies_are_told_what_would_make_them_equal(
    read: Read, arguments: dict[str, Any], hint: str
) -> None:
    (problem,) = read(load_best_model_at_end=True, **arguments).problems
    assert (problem.loc, problem.hint) == (("load_best_model_at_end",), hint)


@pytest.mark.parametrize(
    ("arguments", "name", "part"),
    [
        ({"src_length": 2048}, "src_length", "leaves its target no room"),
        ({"max_steps": 100}, "save_steps", "save_steps 500 > max_steps 100: no checkpoint before the end"),
        (
            {"max_steps": 100, **BY_STEPS, "eval_steps": 100, "load_best_model_at_end": True},
            "save_steps",
            "so load_best_model_at_end has nothing to choose from",
        ),
        (
            {"max_steps": 10, **BY_STEPS, "eval_steps": 11, "save_steps": 5},
            "eval_steps",
            "eval_steps 11 > max_steps 10: evaluated at the end only",
        ),
        (
            {"max_steps": 20, "warmup_steps": 30, "save_steps": 5},
            "warmup_steps",
            "warmup_steps 30 >= max_steps 20",
        ),
        (
            {"warmup_steps": 1, "warmup_ratio": 0.1},
            "warmup_ratio",
            "warmup_steps 1 wins over warmup_ratio 0.1",
        ),
        ({"learning_rate": 0}, "learning_rate", "changes nothing"),
        ({"learning_rate": 3}, "learning_rate", "diverges"),
        (
            {"metric_for_best_model": "loss", "greater_is_better": True},
            "greater_is_better",
            "the checkpoint of the larger loss is taken as the best",
        ),
        ({"amp_master_grad": True}, "amp_master_grad", "no effect with fp16_opt_level O1"),
        (
            {"recompute_granularity": "full_attn"},
            "recompute_granularity",
            '"full_attn" has no effect without recompute',
        ),
    ],
)
def test_what_is_legal_but_surely_unwanted_is_a_warning(
    read: Read, arguments: dict[str, Any], name: str, part: str
) -> None:
    reading = read(**arguments)
    assert reading.config is not None, reading.problems
    assert any(warning.loc == (name,) and part in warning.msg for warning in reading.warnings)


@pytest.mark.parametrize(
    "arguments",
    [
        {"load_best_model_at_end": True, "evaluation_strategy": "epoch", "save_strategy": "epoch"},
        {"load_best_model_at_end": True, **BY_STEPS, "eval_steps": 50, "save_steps": 100},
        {"metric_for_best_model": "eval_accuracy"},
        {"bf16": True, "fp16_opt_level": "O2"},
        {"do_train": False, "do_eval": True, "load_best_model_at_end": True},
        {"learning_rate": 0.03, "src_length": 2047},
        {"recompute": True, "recompute_granularity": "core_attn"},
        {"unified_checkpoint_config": "async_save", "use_async_save": True},
    ],
)
def test_arguments_that_fit_are_accepted_silently(read: Read, arguments: dict[str, Any]) -> None:
    reading = read(**arguments)
    assert reading.config is not None, reading.problems
    assert reading.warnings == ()


def test_a_preference_job_has_metrics_of_its_own() -> None:
    assert read_config("dpo", {**DPO, "metric_for_best_model": "eval_rewards/accuracies"}).problems == ()
    problems = read_config("kto", {**DPO, "metric_for_best_model": "accuracy"}).problems
    assert "rewards/margins, logps/chosen, logps/rejected, kl" in problems[0].msg


@pytest.mark.parametrize(
    ("arguments", "name", "part"),
    [
        ({}, "do_ptq", "no kind of quantization is chosen"),
        ({"do_ptq": True, "do_gptq": True}, "do_ptq", "do_ptq and do_gptq are all true, expected one"),
        ({"do_train": True, "do_ptq": True}, "do_train", "do_train and do_ptq are all true"),
        ({"do_train": True}, "do_train", "task quantize does not train"),
        ({"do_gptq": True, "smooth": True}, "smooth", "do_gptq cannot be combined with smooth"),
        ({"do_ptq": True, "search_scale_min": 9}, "search_scale_min", "at most search_scale_max 5.0"),
        ({"do_qat": True}, "do_qat", "quantization-aware training is not offered"),
    ],
)
def test_a_quantization_job_does_one_thing(arguments: dict[str, Any], name: str, part: str) -> None:
    problems = read_config("quantize", QUANTIZE | arguments).problems
    assert any(problem.loc == (name,) and part in problem.msg for problem in problems)


def test_an_adapter_of_no_scale_is_refused() -> None:
    arguments = {"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o", "do_train": True}
    (problem,) = read_config("finetune", arguments | {"lora": True, "lora_alpha": 0}).problems
    assert problem.loc == ("lora_alpha",)
    assert read_config("finetune", arguments | {"lora_alpha": 0}).problems == ()


@pytest.mark.parametrize(
    ("metric", "greater"),
    [("rewards/chosen", True), ("eval_rewards/rejected", False), ("kl", False), ("logps/rejected", False)],
)
def test_what_is_rejected_is_better_the_less_it_is_rewarded(metric: str, greater: bool) -> None:
    config = read_config("kto", {**DPO, "metric_for_best_model": metric}).config
    assert config is not None
    assert config.resolved()["greater_is_better"] is greater
