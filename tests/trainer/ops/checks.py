"""Comparing a Paddle operation with its naive float64 formula."""

from collections.abc import Callable

import numpy as np
import paddle
from paddle import Tensor

from tests.trainer.ops import naive


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Random float64 arrays that are exact in float32."""
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(np.float32).astype(np.float64) for shape in shapes]


def gradient(tensor: Tensor) -> np.ndarray:
    """The gradient a tensor has got."""
    assert tensor.grad is not None
    return tensor.grad.numpy()


def run(operation: Callable[..., Tensor], inputs: list[np.ndarray], out: np.ndarray) -> list[np.ndarray]:
    """Result and gradients of an operation in float32."""
    tensors = [paddle.to_tensor(array.astype(np.float32), stop_gradient=False) for array in inputs]
    result = operation(*tensors)
    result.backward(paddle.to_tensor(out.astype(np.float32)))
    return [result.numpy(), *map(gradient, tensors)]


def assert_same(
    operation: Callable[..., Tensor], formula: Callable[..., np.ndarray], inputs: list[np.ndarray]
) -> None:
    """The operation gives the formula's values and its gradients, to float32 accuracy."""
    expected = formula(*inputs)
    (out,) = arrays(expected.shape, seed=99)
    result, *gradients = run(operation, inputs, out)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    for which, found in enumerate(gradients):
        reference = naive.gradient(formula, inputs, which, out)
        np.testing.assert_allclose(found, reference, rtol=1e-4, atol=1e-4 * np.abs(reference).max())


def assert_frozen(operation: Callable[..., Tensor], inputs: list[np.ndarray], frozen: int) -> None:
    """An input that takes no gradient gets none, and the others get the same as without it."""
    tensors = [paddle.to_tensor(array.astype(np.float32), stop_gradient=False) for array in inputs]
    tensors[frozen].stop_gradient = True
    result = operation(*tensors)
    result.sum().backward()
    _, *gradients = run(operation, inputs, np.ones(result.shape))
    for which, tensor in enumerate(tensors):
        if which == frozen:
            assert tensor.grad is None
        else:
            np.testing.assert_array_equal(gradient(tensor), gradients[which])


def assert_deterministic(operation: Callable[..., Tensor], inputs: list[np.ndarray]) -> None:
    """The same inputs give the same bits, forwards and backwards."""
    (out,) = arrays(
        tuple(operation(*(paddle.to_tensor(x.astype(np.float32)) for x in inputs)).shape), seed=99
    )
    first = [array.tobytes() for array in run(operation, inputs, out)]
    for _ in range(5):
        assert [array.tobytes() for array in run(operation, inputs, out)] == first
