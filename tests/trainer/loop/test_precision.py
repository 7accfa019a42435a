import json
from collections.abc import Callable
from inspect import signature
from typing import Any

import paddle
import pytest

from trainer.config import FinetuneConfig
from trainer.loop.precision import FullPrecision, LossScale, Precision, choose_precision, make_precision

MakeConfig = Callable[..., FinetuneConfig]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_without_fp16_and_bf16_a_run_is_fp32(make_config: MakeConfig, device: str) -> None:
    assert choose_precision(make_config(), device) == (Precision(), None)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_half_precision_on_cpu_runs_as_fp32_with_a_warning(make_config: MakeConfig, name: str) -> None:
    precision, warning = choose_precision(make_config(**{name: True, "fp16_opt_level": "O2"}), "cpu")
    assert precision == Precision()
    assert warning is not None
    assert warning.loc == (name,)
    assert "runs as fp32" in warning.msg


@pytest.mark.parametrize(
    ("changes", "expected", "scaled", "masters"),
    [
        ({"fp16": True}, Precision("float16", "O1"), True, False),
        ({"fp16": True, "fp16_opt_level": "O2"}, Precision("float16", "O2"), True, True),
        ({"bf16": True}, Precision("bfloat16", "O1"), False, False),
        ({"bf16": True, "fp16_opt_level": "O2"}, Precision("bfloat16", "O2"), False, True),
    ],
)
def test_on_gpu_only_fp16_is_scaled_and_only_o2_keeps_master_weights(
    make_config: MakeConfig, changes: dict[str, Any], expected: Precision, scaled: bool, masters: bool
) -> None:
    precision, warning = choose_precision(make_config(**changes), "gpu")
    assert (precision, warning) == (expected, None)
    assert (precision.loss_scaling, precision.master_weights) == (scaled, masters)


def test_level_o0_on_gpu_is_fp32(make_config: MakeConfig) -> None:
    config = make_config(bf16=True, fp16_opt_level="O0")
    precision, warning = choose_precision(config, "gpu")
    assert (precision, warning) == (Precision(), None)
    assert type(make_precision(precision, config)) is FullPrecision


def test_a_loss_scale_halves_after_an_overflow_and_doubles_after_2000_good_steps() -> None:
    scale = LossScale(1024.0)
    scale.note(overflowed=True)
    assert scale.value == 512.0
    for _ in range(1999):
        scale.note(overflowed=False)
    assert scale.value == 512.0
    scale.note(overflowed=False)
    assert (scale.value, scale.good_steps) == (1024.0, 0)


def test_an_overflow_begins_the_count_of_good_steps_anew() -> None:
    scale = LossScale(4.0)
    for overflowed in (False, False, True, False):
        scale.note(overflowed=overflowed)
    assert (scale.value, scale.good_steps) == (2.0, 1)


def test_its_rules_are_those_of_the_grad_scaler_of_paddle() -> None:
    theirs = {name: item.default for name, item in signature(paddle.amp.GradScaler).parameters.items()}
    assert theirs["incr_ratio"] == LossScale.RISE
    assert theirs["decr_ratio"] == LossScale.FALL
    assert theirs["incr_every_n_steps"] == LossScale.GOOD_STEPS_TO_RISE
    assert theirs["decr_every_n_nan_or_inf"] == 1


def test_a_loss_scale_goes_on_from_its_state_through_json_and_from_that_of_a_grad_scaler() -> None:
    before = LossScale(8.0)
    before.note(overflowed=True)
    before.note(overflowed=False)
    states: list[dict[str, Any]] = [
        json.loads(json.dumps(before.state())),
        {"scale": [4.0], "incr_count": 1, "decr_count": 0, "incr_ratio": 2.0},
    ]
    for state in states:
        after = LossScale(1.0)
        after.load_state(state)
        assert (after.value, after.good_steps) == (4.0, 1)


def test_only_fp16_has_a_loss_scale_and_its_state_is_kept(make_config: MakeConfig) -> None:
    config = make_config(scale_loss=64.0)
    scaled = make_precision(Precision("float16", "O1"), config)
    assert (scaled.loss_scale, scaled.may_skip) == (64.0, True)
    scaled.note(overflowed=True)
    again = make_precision(Precision("float16", "O1"), config)
    again.load_state(scaled.state())
    assert again.loss_scale == 32.0
    for precision in (make_precision(Precision("bfloat16", "O2"), config), FullPrecision()):
        precision.note(overflowed=True)
        assert (precision.loss_scale, precision.may_skip, precision.state()) == (1.0, False, {})


@pytest.mark.parametrize(
    ("level", "asked", "given"), [("O2", True, True), ("O2", False, False), ("O1", True, False)]
)
def test_master_gradients_are_for_o2(make_config: MakeConfig, level: Any, asked: bool, given: bool) -> None:
    precision = make_precision(Precision("bfloat16", level), make_config(amp_master_grad=asked))
    assert precision.main_gradients == given
