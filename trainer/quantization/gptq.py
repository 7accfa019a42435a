"""GPTQ: weights rounded one input at a time, what is not rounded yet making up for the error.

Frantar et al., arXiv 2210.17323. All in float64. For outputs `x @ w`, the Hessian of the squared error is the
same for every output: H = 2/N sum x x^T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor

from trainer.quantization.formats import (
    WHOLE_ROW,
    Integers,
    absmax_scales,
    group_count,
    half_scales,
    quantize_rows,
    rounded,
)

#: What damping grows by when the Hessian cannot be inverted, from what on, and up to what.
_DAMPING_GROWTH = 10.0
_FIRST_RAISED_DAMPING = 0.01
_LARGEST_DAMPING = 1.0


class SingularHessianError(ArithmeticError):
    """Even the largest damping gives no Hessian that can be inverted."""


class Hessian:
    """H of the inputs of a layer, summed up batch by batch; memory `[in, in]` in float64.

    Attributes:
        tokens: how many inputs there were.
    """

    def __init__(self, inputs: int) -> None:
        self.tokens = 0
        self._sum = paddle.zeros([inputs, inputs], "float64")

    @paddle.no_grad()
    def add(self, x: Tensor) -> None:
        """Take in inputs `[tokens, in]`."""
        wide = x.astype("float64")
        self._sum += paddle.matmul(wide, wide, transpose_x=True)
        self.tokens += x.shape[0]

    def matrix(self) -> Tensor:
        """2/N sum x x^T, float64 `[in, in]`."""
        return self._sum * (2.0 / max(self.tokens, 1))


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

    Raises:
        SingularHessianError: no damping helped, as with inputs that are not finite.
    """
    original = weight.astype("float64")
    wanted = hessian if hessian.dtype == paddle.float64 else hessian.astype("float64")
    diagonal = paddle.diagonal(wanted)
    dead = diagonal == 0
    diagonal = paddle.where(dead, paddle.ones_like(diagonal), diagonal)
    order = paddle.argsort(-diagonal, stable=True) if act_order else paddle.arange(len(diagonal))
    factor, used = _inverse_factor(wanted, diagonal, order, damping)
    work = paddle.where(dead.unsqueeze(0), paddle.zeros_like(original), original)
    work = paddle.index_select(work, order, axis=1)
    values, scales = _Rounding(work, factor, bits, group_size, half).run(block_size)

    back = paddle.argsort(order)
    values = paddle.index_select(values, back, axis=1)
    is_grouped = act_order and scales.shape[1] > 1
    g_idx = (back // group_size).astype("int32") if is_grouped else None
    integers = Integers(values.astype("int8"), scales, group_size, bits, g_idx)

    plain_scales = absmax_scales(original, bits, group_size)
    nearest = quantize_rows(original, bits, group_size, half_scales(plain_scales) if half else plain_scales)
    power = weighted_square(original, wanted)
    error = weighted_square(original - integers.dequantize().astype("float64"), wanted, power)
    rtn_error = weighted_square(original - nearest.dequantize().astype("float64"), wanted, power)
    if rtn_error < error:
        integers, error = nearest, rtn_error
    return GptqResult(integers, error, rtn_error, used, int(dead.sum()))


def weighted_square(difference: Tensor, hessian: Tensor, power: float = 1.0) -> float:
    """tr(D H D^T), twice the mean over inputs of squared outputs of `D [out, in]`, relative to `power`."""
    total = float((paddle.matmul(difference, hessian) * difference).sum())
    return total / power if power > 0 else 0.0


class _Rounding:
    """The loop over inputs, in the order given.

    Args:
        work: weights float64 `[out, in]`.
        factor: upper triangular, float64 `[in, in]`.
    """

    def __init__(self, work: Tensor, factor: Tensor, bits: int, group_size: int, half: bool) -> None:
        self._factor, self._bits, self._half = factor, bits, half
        self._groups = group_count(work.shape[1], group_size)
        # Inputs as rows: one of them, and all that follow, lie together in memory. Up to date where a block
        # begins.
        self._rows = work.t().contiguous()
        self._start = 0

    def run(self, block_size: int) -> tuple[Tensor, Tensor]:
        """Whole numbers float32 `[out, in]` and scales float32 `[out, groups]`."""
        inputs, outputs = self._rows.shape
        size = inputs // self._groups
        values = paddle.empty([inputs, outputs], "float32")
        scales = []
        for start in range(0, inputs, block_size):
            stop = min(start + block_size, inputs)
            self._start = start
            errors = paddle.empty([stop - start, outputs], "float64")
            for place in range(start, stop):
                before = errors[: place - start]
                if place % size == 0:
                    scales.append(self._scale(self._current(place, place + size, before)))
                scale = scales[-1].squeeze(1).astype("float64")
                row = self._current(place, place + 1, before).squeeze(0)
                value = rounded(row / scale, self._bits)
                errors[place - start] = (row - value * scale) / self._factor[place, place]
                values[place] = value.astype("float32")
            if stop < inputs:
                self._rows = paddle.concat([self._rows[:stop], self._current(stop, inputs, errors)])
        return values.t().contiguous(), paddle.concat(scales, axis=1)

    def _current(self, first: int, stop: int, errors: Tensor) -> Tensor:
        """Weights `[stop - first, out]` of some inputs, after the errors `[done, out]` of the block."""
        rows, done = self._rows[first:stop], errors.shape[0]
        if done == 0:
            return rows
        taken = self._factor[self._start : self._start + done, first:stop]
        return rows - paddle.matmul(taken, errors, transpose_x=True)

    def _scale(self, rows: Tensor) -> Tensor:
        scales = absmax_scales(rows.t(), self._bits)
        return half_scales(scales) if self._half else scales


def _inverse_factor(hessian: Tensor, diagonal: Tensor, order: Tensor, damping: float) -> tuple[Tensor, float]:
    """U, upper triangular, with U^T U the inverse of the damped Hessian; and the damping that was used.

    That is the inverse of V, upper triangular, with V V^T the Hessian: its Cholesky factor from the last
    input to the first. So the inverse of the Hessian, which has fewer good digits, is never made. Besides the
    given Hessian there are three matrices of its size at most.

    Args:
        hessian: `[in, in]`, its inputs as they come.
        diagonal: `[in]`, what its diagonal is taken for.
        order: `[in]`, the inputs in the order of U.
    """
    backwards = paddle.flip(order, [0])
    matrix = paddle.index_select(paddle.index_select(hessian, backwards, axis=0), backwards, axis=1)
    diagonal = paddle.index_select(diagonal, backwards)
    mean = float(diagonal.mean())
    while True:
        lower = _cholesky(paddle.diagonal_scatter(matrix, diagonal + damping * mean))
        if lower is not None:
            break
        if damping >= _LARGEST_DAMPING:
            raise SingularHessianError(f"the Hessian cannot be inverted with a damping of {damping:g}")
        damping = min(max(damping * _DAMPING_GROWTH, _FIRST_RAISED_DAMPING), _LARGEST_DAMPING)
    del matrix
    lower = paddle.flip(lower, [0, 1])
    return paddle.linalg.triangular_solve(lower, paddle.eye(len(diagonal), dtype="float64")), damping


def _cholesky(matrix: Tensor) -> Tensor | None:
    """The lower factor; None where the matrix is singular as far as float64 can tell."""
    try:
        lower = paddle.linalg.cholesky(matrix)
    except (OSError, RuntimeError, ValueError):  # whichever Paddle's kernels raise
        return None
    pivots = paddle.diagonal(lower) ** 2
    negligible = matrix.shape[0] * np.finfo(np.float64).eps * float(paddle.diagonal(matrix).max())
    # Comparisons with NaN are false.
    return lower if float(pivots.min()) > negligible else None
