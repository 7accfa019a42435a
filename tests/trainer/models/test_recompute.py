"""Computing activations again changes no number, and keeps less in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import paddle
import pytest

from trainer import load_model
from trainer.config.adapters import LoraSettings
from trainer.models.base import CausalLM
from trainer.models.recompute import Granularity, recompute_activations
from trainer.peft.lora.adapter import add_lora
from trainer.peft.prefix.adapter import add_prefix

IDS = np.array([[5, 6, 7, 8, 9, 10], [11, 12, 13, 0, 0, 0]])
LABELS = np.array([[6, 7, 8, 9, 10, 11], [12, 13, 14, -100, -100, -100]])
REAL = (IDS > 0).astype("int64")
GRANULARITIES = ("full", "full_attn", "core_attn")


def whole(model: CausalLM) -> None:
    """All weights are trained."""


def with_lora(model: CausalLM) -> None:
    settings = LoraSettings(rank=2, alpha=4.0, dropout=0.5, rslora=False, targets=(), base="base")
    adapter = add_lora(model, settings, seed=1)
    for weight in adapter.weights().values():  # B is zero at first, and then A has no gradient
        weight.parameter.set_value(np.full(weight.parameter.shape, 0.1, "float32"))


def with_prefix(model: CausalLM) -> None:
    add_prefix(model, 3, seed=1)


def with_projected_prefix(model: CausalLM) -> None:
    add_prefix(model, 3, 8, seed=1)


METHODS = [whole, with_lora, with_prefix, with_projected_prefix]


def loss_and_gradients(
    directory: Path, method: Callable[[CausalLM], None], granularity: Granularity | None
) -> tuple[float, dict[str, np.ndarray]]:
    model = load_model(directory)
    method(model)
    if granularity is not None:
        recompute_activations(model, granularity)
    model.train()
    paddle.seed(7)
    masks = {"attention_mask": paddle.to_tensor(REAL)}
    loss = model.loss(paddle.to_tensor(IDS), paddle.to_tensor(LABELS), **masks).sum
    loss.backward()
    weights = model.trained_weights()
    gradients = {name: weight.parameter.grad for name, weight in weights.items()}
    return float(loss), {name: np.asarray(grad) for name, grad in gradients.items() if grad is not None}


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["gemma", "bloom"])
def test_losses_and_gradients_are_the_same_to_the_bit_with_dropout_too(
    family: str,
    method: Callable[[CausalLM], None],
    granularity: Granularity,
    request: pytest.FixtureRequest,
) -> None:
    directory = request.getfixturevalue(f"tiny_{family}")
    expected_loss, expected = loss_and_gradients(directory, method, None)
    loss, found = loss_and_gradients(directory, method, granularity)
    assert loss == expected_loss
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_array_equal(found[name], gradient, err_msg=name)
        assert np.any(gradient), name


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_parts_run_once_more_in_the_backward_pass_and_only_there(
    tiny_gemma: Path, granularity: Granularity
) -> None:
    calls = []

    def count(layer: Any, inputs: Any) -> None:
        calls.append(type(layer).__name__)

    model = load_model(tiny_gemma)
    for layer in model.sublayers():
        if type(layer).__name__ in ("GemmaLayer", "GemmaAttention"):
            layer.register_forward_pre_hook(cast(Any, count))
    layers = model.config.num_hidden_layers
    recompute_activations(model, granularity)
    ids = paddle.to_tensor(IDS)
    with paddle.no_grad():
        model.loss(ids, ids)
    assert len(calls) == 2 * layers
    calls.clear()
    loss = model.loss(ids, ids).sum
    assert len(calls) == 2 * layers
    loss.backward()
    # A module's own hooks run around what is computed again, those of the modules inside it run again.
    again = {"full": layers, "full_attn": 0, "core_attn": 0}[granularity]
    assert len(calls) == 2 * layers + again
