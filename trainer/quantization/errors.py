"""What quantization does to the outputs of linear layers, on a sample of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor

from trainer.quantization.formats import Integers, limits, quantize_rows, rounded, row_blocks
from trainer.quantization.layers import INPUT_BITS
from trainer.quantization.observers import ActMethod, InputStatistics
from trainer.quantization.pulse import Tick, no_tick


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

    @paddle.no_grad()
    def __init__(
        self,
        statistics: InputStatistics,
        weights: Sequence[Tensor],
        form: NumberFormat,
        tick: Tick = no_tick,
    ) -> None:
        """Compute what outputs should be.

        Args:
            statistics: of the input.
            weights: floating point `[in, out]` of each layer.
            form: how to round.
            tick: called all the time.
        """
        self._statistics, self._weights, self._form, self._tick = statistics, weights, form, tick
        self._wanted = [paddle.matmul(statistics.sample, weight.astype("float32")) for weight in weights]

    @paddle.no_grad()
    def __call__(self, factors: np.ndarray) -> float:
        """The mean squared error with factors `[in]` above 0."""
        factor = paddle.to_tensor(factors.astype(np.float32))
        x = self._statistics.sample / factor
        if self._form.act is not None:
            x = fake_quantized(x, input_scale(self._statistics.absmax(self._form.act, factors)))
        total, numbers = 0.0, 0
        for weight, wanted in zip(self._weights, self._wanted, strict=True):
            outputs = weight.shape[1]
            for start, stop in row_blocks(outputs):
                self._tick()
                rows = weight[:, start:stop].t().astype("float32") * factor
                integers = quantize_rows(rows, self._form.bits, self._form.group_size)
                found = paddle.matmul(x, integers.dequantize(), transpose_y=True)
                total += float(((found - wanted[:, start:stop]) ** 2).sum())
            numbers += outputs * x.shape[0]
        return total / numbers


@paddle.no_grad()
def squared_error(
    sample: Tensor, weight: Tensor, integers: Integers, scale_of_input: float | None = None
) -> float:
    """The mean squared error of the outputs of one layer.

    Args:
        sample: inputs, float32 `[tokens, in]`.
        weight: floating point `[in, out]`.
        integers: what is in the place of the weights.
        scale_of_input: what 1 means in inputs that are rounded to 8 bits; None: they are not rounded.
    """
    x = sample if scale_of_input is None else fake_quantized(sample, scale_of_input)
    outputs = weight.shape[1]
    total = 0.0
    for start, stop in row_blocks(outputs):
        found = paddle.matmul(x, integers.rows(start, stop).dequantize(), transpose_y=True)
        wanted = paddle.matmul(sample, weight[:, start:stop].astype("float32"))
        total += float(((found - wanted) ** 2).sum())
    return total / (sample.shape[0] * outputs)


@paddle.no_grad()
def mean_square(sample: Tensor, weight: Tensor) -> float:
    """The mean of the squared outputs of inputs `[tokens, in]` and weights `[in, out]`."""
    outputs = weight.shape[1]
    total = 0.0
    for start, stop in row_blocks(outputs):
        total += float((paddle.matmul(sample, weight[:, start:stop].astype("float32")) ** 2).sum())
    return total / (sample.shape[0] * outputs)


@paddle.no_grad()
def dead_outputs(weight: Tensor) -> int:
    """How many outputs of `[in, out]` have no weight but zeros."""
    outputs = weight.shape[1]
    blocks = row_blocks(outputs)
    return sum(int((weight[:, start:stop] == 0).all(axis=0).sum()) for start, stop in blocks)


def fake_quantized(x: Tensor, scale: float) -> Tensor:
    """Inputs rounded to what 8 bits hold."""
    return rounded(x / scale, INPUT_BITS) * scale


def input_scale(absmax: float) -> float:
    """What 1 means in 8-bit inputs of this range; of inputs that are all zero it does not matter."""
    return (absmax if absmax > 0 else 1.0) / limits(INPUT_BITS)[1]
