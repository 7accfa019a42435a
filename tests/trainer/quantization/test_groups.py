"""Factors and shifts of inputs leave a model as it was."""

import numpy as np
import pytest

from tests.trainer.quantization.calibrated import FAMILIES, batches, small, states_of
from trainer.models import linear_layers
from trainer.quantization.calibration import Walk
from trainer.quantization.groups import input_groups

TOLERANCE = 1e-5


def relative(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_linear_layer_is_in_one_group(family: str) -> None:
    model = small(family)
    grouped = [
        path
        for block in Walk(model, batches(1))
        for group in input_groups(model, block)
        for path in group.paths
    ]
    assert grouped == [layer.path for layer in linear_layers(model)]


@pytest.mark.parametrize("family", FAMILIES)
def test_factors_leave_logits_unchanged_also_with_shared_value_heads(family: str) -> None:
    model, given = small(family), batches(1)
    before, draws = states_of(model, given[0]), np.random.default_rng(3)
    divided = 0
    for block in Walk(model, given):
        for group in input_groups(model, block):
            if group.source is not None:
                group.divide(draws.uniform(0.1, 1.0, group.source.channels))
                divided += 1
    assert divided == {"gemma": 8, "bloom": 6}[family]
    assert relative(states_of(model, given[0]), before) < TOLERANCE


@pytest.mark.parametrize(("family", "more"), [("bloom", {}), ("gemma", {"attention_bias": True})])
def test_shifts_leave_logits_unchanged_where_there_are_biases(family: str, more: dict[str, bool]) -> None:
    model, given = small(family, **more), batches(1)
    before, draws = states_of(model, given[0]), np.random.default_rng(3)
    shifted = 0
    for block in Walk(model, given):
        for group in input_groups(model, block):
            if not group.shift_reason:
                assert group.source is not None
                group.subtract(draws.normal(0, 0.5, group.source.channels))
                shifted += 1
    assert shifted == {"gemma": 2, "bloom": 6}[family]
    assert relative(states_of(model, given[0]), before) < TOLERANCE


def test_what_takes_up_no_factors_says_why() -> None:
    bloom, gemma = small("bloom"), small("gemma")
    *_, down = input_groups(bloom, next(iter(Walk(bloom, batches(1)))))
    assert down.source is None
    assert "activation" in down.reason
    with pytest.raises(ValueError, match="activation"):
        down.divide(np.ones(4))
    first, *_ = input_groups(gemma, next(iter(Walk(gemma, batches(1)))))
    assert "no bias" in first.shift_reason
    with pytest.raises(ValueError, match="no bias"):
        first.subtract(np.zeros(48))


def test_a_residual_from_the_norm_keeps_factors_out() -> None:
    model = small("bloom")
    object.__setattr__(model.config, "apply_residual_connection_post_layernorm", True)
    first, *_ = input_groups(model, next(iter(Walk(model, batches(1)))))
    assert first.source is None
    assert "residual" in first.reason
