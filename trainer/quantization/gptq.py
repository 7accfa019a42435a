"""GPTQ: weights rounded one input at a time, what is not rounded yet making up for the error.

Frantar et al., arXiv 2210.17323. All in float64. For outputs `x @ w`, the Hessian of the squared error is the
same for every output: H = 2/N sum x x^T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor

from trainer.quantization.cholesky import invert_to_factor
from trainer.quantization.formats import (
    WHOLE_ROW,
    Integers,
    absmax_scales,
    group_count,
    half_scales,
    quantize_rows,
    rounded,
    row_blocks,
    scales_of,
)
from trainer.quantization.pulse import Tick, no_tick

#: What damping grows by when the Hessian cannot be inverted, from what on, and up to what.
_DAMPING_GROWTH = 10.0
_FIRST_RAISED_DAMPING = 0.01
_LARGEST_DAMPING = 1.0


class SingularHessianError(ArithmeticError):
    """Even the largest damping gives no Hessian that can be inverted."""


class Hessian:
    """H of the inputs of a layer, kept up to date batch by batch; memory `[in, in]` in float64.

    Attributes:
        tokens: how many inputs there were.
    """

    def __init__(self, inputs: int) -> None:
        self.tokens = 0
        self._mean = paddle.zeros([inputs, inputs], "float64")

    @paddle.no_grad()
    def add(self, x: Tensor, tick: Tick = no_tick) -> None:
        """Take in inputs `[tokens, in]`; `tick` is called all the time."""
        wide = x.astype("float64")
        before, self.tokens = self.tokens, self.tokens + x.shape[0]
        self._mean.scale_(before / self.tokens)
        inputs = x.shape[1]
        for start, stop in row_blocks(inputs):
            tick()
            products = paddle.matmul(wide[:, start:stop], wide, transpose_x=True).scale_(2.0 / self.tokens)
            self._mean[start:stop] = products.add_(self._mean[start:stop])

    def matrix(self) -> Tensor:
        """2/N sum x x^T, float64 `[in, in]`; not a copy."""
        return self._mean


@dataclass(frozen=True)
class GptqResult:
    """A quantized weight matrix and what it costs.

    Attributes:
        integers: the weights; with activation order and groups they have a `g_idx`.
        error: squared error of the outputs relative to their square, on the inputs of the Hessian.
        rtn_error: the same of weights that are rounded to nearest.
        damping: what was used, relative to the mean of the Hessian's diagonal.
        dead_inputs: how many inputs were always zero; their weights are zero.
    """

    integers: Integers
    error: float
    rtn_error: float
    damping: float
    dead_inputs: int


@paddle.no_grad()
def gptq_quantize(
    weight: Tensor,
    hessian: Tensor,
    bits: int,
    group_size: int = WHOLE_ROW,
    damping: float = 0.01,
    block_size: int = 128,
    act_order: bool = False,
    half: bool = False,
    tick: Tick = no_tick,
) -> GptqResult:
    """Quantize a weight matrix; never worse than rounding to nearest, which is kept where it is better.

    Whole rows have the scale of the given weights (those of dead inputs aside). Groups are of inputs that are
    treated one after another, with the scale of their weights as they are when the first one's turn comes.

    Args:
        weight: floating point `[out, in]`.
        hessian: `[in, in]` of the layer's inputs, as `Hessian` gives it.
        bits: 4 or 8.
        group_size: inputs that share a scale.
        damping: added to the diagonal, relative to its mean; raised tenfold up to 1 where the Hessian cannot
            be inverted.
        block_size: inputs between two updates of all later weights; changes the speed only.
        act_order: treat the inputs of the largest diagonal first.
        half: round scales to float16 first, as the files of GPTQ hold them.
        tick: called all the time.

    Memory beside the weights and the Hessian: a matrix of the Hessian's size, the weights in float64, the
    results, and little of what is between.

    Raises:
        SingularHessianError: no damping helped, as with inputs that are not finite.
    """
    wanted = hessian if hessian.dtype == paddle.float64 else hessian.astype("float64")
    diagonal = paddle.diagonal(wanted)
    dead = diagonal == 0
    diagonal = paddle.where(dead, paddle.ones_like(diagonal), diagonal)
    order = paddle.argsort(-diagonal, stable=True) if act_order else paddle.arange(len(diagonal))
    factor, used = _inverse_factor(wanted, diagonal, order, damping, tick)
    alive = paddle.logical_not(dead).astype("float64")
    rounding = _Rounding(_ordered(weight, order, alive), factor, bits, group_size, half, tick)
    values, scales = rounding.run(block_size, order.numpy())
    del factor, rounding

    is_grouped = act_order and scales.shape[1] > 1
    g_idx = (paddle.argsort(order) // group_size).astype("int32") if is_grouped else None
    values = values.t().contiguous()
    integers = Integers(values, scales, group_size, bits, g_idx)

    plain_scales = absmax_scales(weight, bits, group_size)
    nearest = quantize_rows(weight, bits, group_size, half_scales(plain_scales) if half else plain_scales)
    error, rtn_error = _errors(weight, wanted, (integers, nearest), tick)
    if rtn_error < error:
        integers, error = nearest, rtn_error
    return GptqResult(integers, error, rtn_error, used, int(dead.sum()))


def _ordered(weight: Tensor, order: Tensor, alive: Tensor) -> Tensor:
    """Inputs as rows, in their order, float64 `[in, out]`; those that are not `alive` (1 or 0) are zero."""
    outputs, inputs = weight.shape
    rows = paddle.empty([inputs, outputs], "float64")
    for start, stop in row_blocks(inputs):
        places = order[start:stop]
        chosen = paddle.index_select(weight, places, axis=1).t().astype("float64")
        rows[start:stop] = chosen * paddle.index_select(alive, places).unsqueeze(1)
    return rows


def _errors(weight: Tensor, hessian: Tensor, results: tuple[Integers, ...], tick: Tick) -> list[float]:
    """tr(D H D^T) of each result's difference D to the weights `[out, in]`, relative to that of the weights.

    It is twice the mean over inputs of squared outputs of D.
    """
    power, found = 0.0, [0.0] * len(results)
    for start, stop in row_blocks(weight.shape[0]):
        tick()
        rows = weight[start:stop].astype("float64")
        power += _weighted_square(rows, hessian)
        for place, result in enumerate(results):
            difference = rows - result.rows(start, stop).dequantize().astype("float64")
            found[place] += _weighted_square(difference, hessian)
    return [total / power if power > 0 else 0.0 for total in found]


def _weighted_square(difference: Tensor, hessian: Tensor) -> float:
    return float((paddle.matmul(difference, hessian) * difference).sum())


class _Rounding:
    """The loop over inputs, in the order given.

    Args:
        rows: weights float64 `[in, out]`: an input, and all that follow, lie together in memory. It is worked
            in, and up to date where a block begins.
        factor: upper triangular, float64 `[in, in]`.
    """

    def __init__(
        self, rows: Tensor, factor: Tensor, bits: int, group_size: int, half: bool, tick: Tick
    ) -> None:
        self._rows, self._factor, self._bits, self._half, self._tick = rows, factor, bits, half, tick
        self._groups = group_count(rows.shape[0], group_size)
        self._start = 0

    def run(self, block_size: int, places: np.ndarray) -> tuple[Tensor, Tensor]:
        """Whole numbers int8 `[in, out]`, each input in its place, and scales float32 `[out, groups]`."""
        inputs, outputs = self._rows.shape
        size = inputs // self._groups
        values = paddle.empty([inputs, outputs], "int8")
        scales = []
        for start in range(0, inputs, block_size):
            stop = min(start + block_size, inputs)
            self._start = start
            errors = paddle.empty([stop - start, outputs], "float64")
            for place in range(start, stop):
                self._tick()
                before = errors[: place - start]
                if place % size == 0:
                    scales.append(self._scale(place, place + size, before))
                scale = scales[-1].squeeze(1).astype("float64")
                row = self._current(place, place + 1, before).squeeze(0)
                value = rounded(row / scale, self._bits)
                errors[place - start] = (row - value * scale) / self._factor[place, place]
                values[int(places[place])] = value.astype("int8")
            for first, end in row_blocks(inputs - stop):
                self._tick()
                later = slice(stop + first, stop + end)
                self._rows[later] = self._current(later.start, later.stop, errors)
        return values, paddle.concat(scales, axis=1)

    def _current(self, first: int, stop: int, errors: Tensor) -> Tensor:
        """Weights `[stop - first, out]` of some inputs, after the errors `[done, out]` of the block."""
        rows, done = self._rows[first:stop], errors.shape[0]
        if done == 0:
            return rows
        taken = self._factor[self._start : self._start + done, first:stop]
        return rows - paddle.matmul(taken, errors, transpose_x=True)

    def _scale(self, first: int, stop: int, errors: Tensor) -> Tensor:
        largest = paddle.zeros([self._rows.shape[1]], "float64")
        for start, end in row_blocks(stop - first):
            rows = self._current(first + start, first + end, errors)
            largest = paddle.maximum(largest, rows.abs().max(axis=0))
        scales = scales_of(largest.astype("float32").unsqueeze(1), self._bits)
        return half_scales(scales) if self._half else scales


def _inverse_factor(
    hessian: Tensor, diagonal: Tensor, order: Tensor, damping: float, tick: Tick
) -> tuple[Tensor, float]:
    """U, upper triangular, with U^T U the inverse of the damped Hessian; and the damping that was used.

    Args:
        hessian: `[in, in]`, its inputs as they come.
        diagonal: `[in]`, what its diagonal is taken for.
        order: `[in]`, the inputs in the order of U.
    """
    mean, size = float(diagonal.mean()), len(diagonal)
    matrix = paddle.empty([size, size], "float64")
    while True:
        for start, stop in row_blocks(size):
            rows = paddle.index_select(hessian, order[start:stop], axis=0)
            matrix[start:stop] = paddle.index_select(rows, order, axis=1)
        matrix.fill_diagonal_tensor_(paddle.index_select(diagonal, order) + damping * mean)
        if invert_to_factor(matrix, tick):
            return matrix, damping
        if damping >= _LARGEST_DAMPING:
            raise SingularHessianError(f"the Hessian cannot be inverted with a damping of {damping:g}")
        damping = min(max(damping * _DAMPING_GROWTH, _FIRST_RAISED_DAMPING), _LARGEST_DAMPING)
