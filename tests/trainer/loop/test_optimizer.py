from collections.abc import Callable
from typing import Any, cast

import numpy as np
import paddle
import pytest
from paddle.base.framework import EagerParamBase

from trainer import load_model
from trainer.config import FinetuneConfig
from trainer.loop.optimizer import build_optimizer
from trainer.parallel.clip import SLICE_PREFIX

MakeConfig = Callable[..., FinetuneConfig]


def adamw(
    weight: np.ndarray, gradients: list[np.ndarray], rate: float, decay: float, config: FinetuneConfig
) -> np.ndarray:
    """AdamW in float64, as Loshchilov and Hutter write it."""
    weight = weight.astype(np.float64)
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    beta1, beta2 = config.adam_beta1, config.adam_beta2
    for step, gradient in enumerate(gradients, start=1):
        gradient = gradient.astype(np.float64)
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        corrected = np.sqrt(second / (1 - beta2**step)) + config.adam_epsilon
        weight = weight * (1 - rate * decay) - rate * (first / (1 - beta1**step)) / corrected
    return weight


def test_the_update_is_that_of_a_float64_adamw_and_norms_and_biases_do_not_decay(
    make_config: MakeConfig,
) -> None:
    config = make_config(weight_decay=0.1, adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-6)
    layer = paddle.nn.Linear(5, 3)
    norm = paddle.nn.LayerNorm(3)
    parameters = [*layer.parameters(), *norm.parameters()]
    before = [parameter.numpy().copy() for parameter in parameters]
    optimizer = build_optimizer(parameters, config)
    optimizer.set_lr(0.03)
    random = np.random.default_rng(0)
    gradients: list[list[np.ndarray]] = [[] for _ in parameters]
    for _ in range(5):
        norm(layer(paddle.to_tensor(random.normal(size=(4, 5)).astype("float32")))).square().sum().backward()
        for found, parameter in zip(gradients, parameters, strict=True):
            assert parameter.grad is not None
            found.append(parameter.grad.numpy().copy())
        optimizer.step()
        optimizer.clear_grad()
    for parameter, start, found in zip(parameters, before, gradients, strict=True):
        decay = 0.1 if parameter.ndim > 1 else 0.0
        expected = adamw(start, found, 0.03, decay, config)
        np.testing.assert_allclose(parameter.numpy(), expected, rtol=2e-5, atol=2e-6)


def test_frozen_parameters_are_left_alone(make_config: MakeConfig) -> None:
    layer = paddle.nn.Linear(2, 2)
    layer.weight.stop_gradient = True
    before = layer.weight.numpy().copy()
    optimizer = build_optimizer(layer.parameters(), make_config(weight_decay=0.5))
    optimizer.set_lr(1.0)
    layer(paddle.ones([1, 2])).sum().backward()
    optimizer.step()
    np.testing.assert_array_equal(layer.weight.numpy(), before)


def test_a_part_of_a_parameter_decays_as_the_whole_one_does(make_config: MakeConfig) -> None:
    layer = paddle.nn.Linear(2, 2)
    optimizer = build_optimizer(layer.parameters(), make_config(weight_decay=0.1))
    parts = []
    for parameter in layer.parameters():
        part = EagerParamBase(shape=[2], dtype=parameter.dtype, name=SLICE_PREFIX + parameter.name)
        paddle.assign(paddle.ones([2]), part)
        part.grad = paddle.zeros([2])
        parts.append(part)
    cast(Any, optimizer)._parameter_list = parts
    optimizer.set_lr(1.0)
    optimizer.step()
    assert [part.numpy().tolist() for part in parts] == [[pytest.approx(0.9)] * 2, [1.0] * 2]


@pytest.mark.parametrize("family", ["gemma", "bloom"])
def test_no_norm_and_no_bias_of_a_model_decays(
    make_config: MakeConfig, family: str, request: pytest.FixtureRequest
) -> None:
    model = load_model(request.getfixturevalue(f"tiny_{family}"))
    optimizer = build_optimizer(model.parameters(), make_config(weight_decay=0.1))
    optimizer.set_lr(1.0)
    before = {name: parameter.numpy().copy() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():  # without a gradient nothing but the decay changes a weight
        parameter.grad = paddle.zeros_like(parameter)
    optimizer.step()
    decayed = {
        name for name, parameter in model.named_parameters() if (parameter.numpy() != before[name]).any()
    }
    spared = before.keys() - decayed
    assert all("norm" in name or "ln_f" in name or name.endswith("bias") for name in spared)
    assert not any("norm" in name or "ln_f" in name or name.endswith("bias") for name in decayed)
    assert any(name.endswith("ln_f.weight") for name in spared) == (family == "bloom")
