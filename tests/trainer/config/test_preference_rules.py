from typing import Any

import pytest

from trainer.config import Reading, preset, read_config

MINIMAL = {"model_name_or_path": "m", "output_dir": "o", "do_train": True}


def dpo(**arguments: Any) -> Reading:
    return read_config("dpo", MINIMAL | arguments)


def kto(**arguments: Any) -> Reading:
    return read_config("kto", MINIMAL | arguments)


@pytest.mark.parametrize("read", [dpo, kto])
def test_a_prompt_leaves_room_for_a_response(read: Any) -> None:
    problems = read(max_prompt_len=4096).problems
    assert [problem.msg for problem in problems] == ["max_prompt_len 4096 >= max_seq_len 4096, expected less"]


@pytest.mark.parametrize(
    ("arguments", "name", "msg"),
    [
        (
            {"reference_free": True, "loss_type": "kto_pair"},
            "reference_free",
            "true with loss_type kto_pair, expected one of sigmoid, hinge, ipo, or, orpo, simpo",
        ),
        ({"beta": 0, "loss_type": "ipo"}, "beta", "got 0, expected more: loss_type ipo divides by it"),
        ({"beta": 0, "loss_type": "simpo"}, "beta", "got 0, expected more: loss_type simpo divides by it"),
        (
            {"pref_loss_ratio": 0},
            "pref_loss_ratio",
            "pref_loss_ratio and sft_loss_ratio are both 0, so there is nothing to learn",
        ),
        (
            {"ref_model_update_steps": 5, "lora": True},
            "ref_model_update_steps",
            "got 5 with lora, whose reference is the model without its adapter",
        ),
        (
            {"ref_model_update_steps": 5, "precompute_ref_log_probs": True},
            "precompute_ref_log_probs",
            "true with ref_model_update_steps 5, which changes the reference",
        ),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    arguments: dict[str, Any], name: str, msg: str
) -> None:
    (problem,) = dpo(**arguments).problems
    assert (problem.loc, problem.msg) == ((name,), msg)
    assert problem.hint


@pytest.mark.parametrize("loss_type", ["kto_pair", "sppo_hard", "nca_pair", "dpop"])
def test_losses_that_need_a_reference_are_not_reference_free(loss_type: str) -> None:
    assert dpo(loss_type=loss_type, reference_free=True).problems
    assert not dpo(loss_type=loss_type).problems


@pytest.mark.parametrize("loss_type", ["sigmoid", "hinge", "ipo", "or", "orpo", "simpo"])
def test_other_losses_may_be_reference_free(loss_type: str) -> None:
    reading = dpo(loss_type=loss_type, reference_free=True)
    assert (reading.problems, reading.warnings) == ((), ())


@pytest.mark.parametrize(
    ("arguments", "name", "msg"),
    [
        (
            {"label_smoothing": 0.2, "loss_type": "hinge"},
            "label_smoothing",
            "0.2 has no effect with loss_type hinge",
        ),
        ({"simpo_gamma": 1.0}, "simpo_gamma", "1.0 has no effect with loss_type sigmoid"),
        ({"dpop_lambda": 5, "loss_type": "ipo"}, "dpop_lambda", "5.0 has no effect with loss_type ipo"),
        ({"beta": 0}, "beta", "got 0: loss_type sigmoid is then the same for every model"),
        (
            {"ref_model_update_steps": 5, "reference_free": True},
            "ref_model_update_steps",
            "5 has no effect: the training is reference_free",
        ),
    ],
)
def test_what_has_no_effect_is_a_warning(arguments: dict[str, Any], name: str, msg: str) -> None:
    reading = dpo(**arguments)
    assert not reading.problems
    (warning,) = reading.warnings
    assert (warning.loc, warning.msg) == ((name,), msg)


@pytest.mark.parametrize(
    "arguments",
    [
        {"label_smoothing": 0.2},
        {"label_smoothing": 0.2, "simpo_gamma": 1.0, "loss_type": "simpo"},
        {"dpop_lambda": 5, "loss_type": "dpop"},
        {"beta": 0, "loss_type": "or"},
        {"pref_loss_ratio": 0, "sft_loss_ratio": 1},
        {"ref_model_update_steps": 5},
    ],
)
def test_options_of_the_chosen_loss_are_taken_silently(arguments: dict[str, Any]) -> None:
    reading = dpo(**arguments)
    assert (reading.problems, reading.warnings) == ((), ())


@pytest.mark.parametrize("arguments", [{"undesirable_weight": 0}, {"desirable_weight": 0}, {"beta": 0}])
def test_a_kto_factor_of_0_is_a_warning(arguments: dict[str, Any]) -> None:
    reading = kto(**arguments)
    assert not reading.problems
    assert [warning.loc for warning in reading.warnings] == [tuple(arguments)]


def test_orpo_becomes_the_odds_ratio_loss_with_an_sft_loss() -> None:
    reading = dpo(loss_type="orpo")
    assert reading.config is not None
    values = reading.config.resolved()
    assert (values["loss_type"], values["reference_free"], values["sft_loss_ratio"]) == ("or", True, 1.0)
    assert reading.warnings == ()
    again = read_config("dpo", values)
    assert again.config == reading.config
    assert again.warnings == ()


def test_another_weight_of_orpos_sft_loss_is_overruled_with_a_warning() -> None:
    reading = dpo(loss_type="orpo", sft_loss_ratio=0.5)
    assert reading.config is not None
    assert reading.config.resolved()["sft_loss_ratio"] == 1
    assert [warning.loc for warning in reading.warnings] == [("sft_loss_ratio",)]


@pytest.mark.parametrize("loss_type", ["or", "simpo"])
def test_losses_without_a_reference_are_reference_free(loss_type: str) -> None:
    reading = dpo(loss_type=loss_type)
    assert reading.config is not None
    values = reading.config.resolved()
    assert (values["loss_type"], values["reference_free"], values["sft_loss_ratio"]) == (loss_type, True, 0)
    assert reading.warnings == ()
    overruled = dpo(loss_type=loss_type, reference_free=False)
    assert overruled.config == reading.config
    assert [warning.loc for warning in overruled.warnings] == [("reference_free",)]


@pytest.mark.parametrize("name", ["dpo", "dpo_lora", "kto", "kto_lora"])
def test_rules_of_preference_training_say_nothing_about_the_presets(name: str) -> None:
    found = preset("gemma", name)
    reading = read_config(found.task, found.config)
    about = {"beta", "loss_type", "reference_free", "ref_model_update_steps", "pref_loss_ratio"}
    assert not {problem.loc[0] for problem in [*reading.problems, *reading.warnings]} & about


def test_the_best_model_is_not_told_by_measures_against_changing_references() -> None:
    best = {"evaluation_strategy": "steps", "save_strategy": "steps", "load_best_model_at_end": True}
    warned = dpo(**best, ref_model_update_steps=5).warnings
    assert any("before and after an update cannot be compared" in warning.msg for warning in warned)
    for arguments in ({}, {"ref_model_update_steps": 5, "metric_for_best_model": "eval_logps/chosen"}):
        assert not any("cannot be compared" in warning.msg for warning in dpo(**best, **arguments).warnings)
