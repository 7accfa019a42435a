"""Gradients of the inputs do not depend on whether the weights want some too."""

import numpy as np
import paddle
import pytest

from trainer.models.layers import LayerNorm


def gradients(frozen: tuple[str, ...]) -> tuple[np.ndarray, LayerNorm]:
    """Of the input of a layer norm, and the norm with its own."""
    paddle.seed(0)
    norm = LayerNorm(24)
    for name in ("weight", "bias"):
        paddle.assign(paddle.randn([24]), getattr(norm, name))
    x, factors = paddle.randn([5, 24]), paddle.randn([5, 24])
    x.stop_gradient = False
    for name in frozen:
        getattr(norm, name).stop_gradient = True
    (norm(x) * factors).sum().backward()
    assert x.grad is not None
    return x.grad.numpy(), norm


@pytest.mark.parametrize("frozen", [("weight",), ("bias",), ("weight", "bias")])
def test_a_frozen_layer_norm_hands_the_same_gradient_on(frozen: tuple[str, ...]) -> None:
    expected, _ = gradients(())
    found, norm = gradients(frozen)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [getattr(norm, name).grad for name in frozen] == [None] * len(frozen)
