"""What quantization does to the outputs of linear layers, on a sample of inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor

from trainer.quantization.formats import Integers, limits, quantize_rows, rounded
from trainer.quantization.layers import INPUT_BITS
from trainer.quantization.observers import ActMethod, InputStatistics


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a linear layer are rounded.

    Attributes:
        bits: of weights.
        group_size: of weights.
        act: how ranges of inputs, which are rounded to 8 bits, are observed; None: they are not rounded.
    """

    bits: int
    group_size: int
    act: ActMethod | None = None


class OutputError:
    """The error of quantized layers that share an input, as a function of factors of its channels.

    The input is divided by the factors and the weights are multiplied by them before both are rounded.
    """

    def __init__(self, statistics: InputStatistics, weight: Tensor, form: NumberFormat) -> None:
        """Compute what outputs should be.

        Args:
            statistics: of the input.
            weight: float32 `[in, out]`, of all layers side by side.
            form: how to round.
        """
        self._statistics, self._weight, self._form = statistics, weight, form
        self._wanted = paddle.matmul(statistics.sample, weight)

    @paddle.no_grad()
    def __call__(self, factors: np.ndarray) -> float:
        """The mean squared error with factors `[in]` above 0."""
        factor = paddle.to_tensor(factors.astype(np.float32))
        weight = (self._weight * factor.unsqueeze(1)).t()
        integers = quantize_rows(weight, self._form.bits, self._form.group_size)
        x = self._statistics.sample / factor
        if self._form.act is not None:
            x = fake_quantized(x, input_scale(self._statistics.absmax(self._form.act, factors)))
        found = paddle.matmul(x, integers.dequantize(), transpose_y=True)
        return float(((found - self._wanted) ** 2).mean())


@paddle.no_grad()
def squared_error(
    sample: Tensor, weight: Tensor, integers: Integers, scale_of_input: float | None = None
) -> float:
    """The mean squared error of the outputs of one layer.

    Args:
        sample: inputs, float32 `[tokens, in]`.
        weight: float32 `[in, out]`.
        integers: what is in the place of the weights.
        scale_of_input: what 1 means in inputs that are rounded to 8 bits; None: they are not rounded.
    """
    x = sample if scale_of_input is None else fake_quantized(sample, scale_of_input)
    difference = paddle.matmul(x, integers.dequantize(), transpose_y=True) - paddle.matmul(sample, weight)
    return float((difference**2).mean())


@paddle.no_grad()
def mean_square(sample: Tensor, weight: Tensor) -> float:
    """The mean of the squared outputs of inputs `[tokens, in]` and weights `[in, out]`."""
    return float((paddle.matmul(sample, weight) ** 2).mean())


def fake_quantized(x: Tensor, scale: float) -> Tensor:
    """Inputs rounded to what 8 bits hold."""
    return rounded(x / scale, INPUT_BITS) * scale


def input_scale(absmax: float) -> float:
    """What 1 means in 8-bit inputs of this range; of inputs that are all zero it does not matter."""
    return (absmax if absmax > 0 else 1.0) / limits(INPUT_BITS)[1]
