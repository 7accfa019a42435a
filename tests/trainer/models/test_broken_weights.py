"""A model with a broken weight has a broken loss, wherever the weight is."""

from typing import Any

import numpy as np
import paddle
import pytest

from trainer.models import CausalLM, new_model
from trainer.models.registry import family

GEMMA = {
    "vocab_size": 50,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "attention_bias": True,
}
BLOOM = {"vocab_size": 50, "hidden_size": 24, "n_layer": 2, "n_head": 3}
SIZES: dict[str, dict[str, Any]] = {"gemma": GEMMA, "bloom": BLOOM}


def build(model_type: str, **more: Any) -> CausalLM:
    return new_model(family(model_type).config_class.from_dict({**SIZES[model_type], **more}))


def losses(model: CausalLM) -> list[float]:
    """In training, and in evaluation."""
    ids = paddle.to_tensor(np.random.default_rng(0).integers(4, 50, (2, 40)))
    labels = paddle.where(paddle.arange(40) > 30, ids, paddle.full_like(ids, -100))
    model.train()
    training = float(model.loss(ids, labels).sum)
    model.eval()
    with paddle.no_grad():
        return [training, float(model.loss(ids, labels).sum)]


NAMES = [
    (model_type, tied, name)
    for model_type in SIZES
    for tied in (True, False)
    for name in build(model_type, tie_word_embeddings=tied).parameter_names()
    if tied or name == "lm_head.weight"
]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(("model_type", "tied", "name"), NAMES)
def test_one_broken_number_in_any_weight_shows_in_the_loss(
    model_type: str, tied: bool, name: str, value: float
):
    model = build(model_type, tie_word_embeddings=tied)
    parameter = model.parameter_names()[name].parameter
    broken = parameter.numpy()
    broken[(-1,) * broken.ndim] = value
    with paddle.no_grad():
        parameter.set_value(broken)
    assert not np.isfinite(losses(model)).any()


@pytest.mark.parametrize("model_type", SIZES)
def test_a_sound_model_has_a_finite_loss(model_type: str):
    assert np.isfinite(losses(build(model_type))).all()
