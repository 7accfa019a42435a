from collections.abc import Callable
from typing import Any

import pytest

from trainer.config import FinetuneConfig, Reading, read_config

Read = Callable[..., Reading]


@pytest.mark.parametrize(
    ("arguments", "derived"),
    [
        ({}, {"tokenizer_name_or_path": "gemma", "metric_for_best_model": None, "eval_steps": None}),
        ({"evaluation_strategy": "epoch"}, {"do_eval": True, "eval_steps": None}),
        ({"evaluation_strategy": "steps", "logging_steps": 7}, {"do_eval": True, "eval_steps": 7}),
        ({"evaluation_strategy": "steps", "eval_steps": 3}, {"eval_steps": 3}),
        ({"do_eval": True}, {"evaluation_strategy": "steps", "eval_steps": 500}),
        ({"do_eval": True, "do_train": False}, {"evaluation_strategy": "no", "eval_steps": None}),
        (
            {"load_best_model_at_end": True, "evaluation_strategy": "epoch", "save_strategy": "epoch"},
            {"metric_for_best_model": "loss", "greater_is_better": False},
        ),
        ({"metric_for_best_model": "accuracy"}, {"greater_is_better": True}),
        ({"metric_for_best_model": "eval_loss"}, {"greater_is_better": False}),
        ({"metric_for_best_model": "ppl"}, {"greater_is_better": False}),
        ({"metric_for_best_model": "accuracy", "greater_is_better": False}, {"greater_is_better": False}),
        ({"save_total_limit": 0}, {"save_total_limit": None}),
        ({"save_total_limit": 1}, {"save_total_limit": 1}),
        ({"no_cuda": True}, {"device": "cpu"}),
        ({"tokenizer_name_or_path": "other"}, {"tokenizer_name_or_path": "other"}),
    ],
)
def test_values_that_follow_from_others_are_filled_in(
    read: Read, arguments: dict[str, Any], derived: dict[str, Any]
) -> None:
    config = read(**arguments).config
    assert config is not None
    assert {name: getattr(config, name) for name in derived} == derived


@pytest.mark.parametrize("task", ["finetune", "dpo", "kto"])
def test_no_do_flag_at_all_means_train_with_a_warning(task: str) -> None:
    raw = {"model_name_or_path": "m", "output_dir": "o"}
    if task == "finetune":
        raw["dataset_name_or_path"] = "d"
    reading = read_config(task, raw)
    assert reading.config is not None
    assert reading.config.resolved()["do_train"] is True
    assert [warning.loc for warning in reading.warnings] == [("do_train",)]


def test_do_eval_false_is_overruled_by_a_strategy_with_a_warning(read: Read) -> None:
    reading = read(do_eval=False, evaluation_strategy="epoch")
    assert isinstance(reading.config, FinetuneConfig)
    assert reading.config.do_eval
    assert [warning.loc for warning in reading.warnings] == [("do_eval",)]


def test_do_eval_without_a_strategy_warns_how_often_it_evaluates(read: Read) -> None:
    (warning,) = read(do_eval=True, logging_steps=5).warnings
    assert warning.msg == "do_eval without evaluation_strategy evaluates every 5 optimizer steps"


def test_rslora_plus_is_short_for_three_arguments() -> None:
    raw = {"model_name_or_path": "m", "output_dir": "o", "do_train": True, "rslora_plus": True}
    config = read_config("dpo", raw).config
    assert config is not None
    resolved = config.resolved()
    assert (resolved["rslora"], resolved["lora_plus_scale"], resolved["lora_alpha"]) == (True, 4.0, 4)


def test_without_degrees_above_one_a_job_needs_one_device(read: Read) -> None:
    for arguments in (
        {},
        {"sharding": "stage2"},
        {"sharding_parallel_degree": 8},
        {"tensor_parallel_degree": 1},
    ):
        config = read(**arguments).config
        assert config is not None
        assert config.world_size() == 1


def test_parallel_degrees_multiply() -> None:
    config = FinetuneConfig.model_construct(
        tensor_parallel_degree=2, pipeline_parallel_degree=-1, sharding="stage1", sharding_parallel_degree=4
    )
    assert config.world_size() == 8
    assert config.parallel_degrees() == {"tensor_parallel_degree": 2, "sharding_parallel_degree": 4}
