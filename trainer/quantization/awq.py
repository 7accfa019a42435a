"""AWQ: weights of channels with large inputs made larger before they are rounded (arXiv 2306.00978).

And clipping: ranges of weights narrowed where that makes outputs better.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
from paddle import Tensor

from trainer.models.parts import Role
from trainer.quantization.formats import group_count, limits, rounded, row_blocks
from trainer.quantization.pulse import Tick, no_tick

_RATIOS = 20
_SMALLEST_FACTOR = 1e-4
_CLIP_GRID = 20
_MOST_CLIPPED = 0.5
#: Layers whose ranges are not narrowed, as the authors do: queries meet keys before anything is averaged.
UNCLIPPED_ROLES = (Role.QUERY, Role.KEY, Role.QUERY_KEY_VALUE)


def awq_factors(mean_abs: np.ndarray, error_of: Callable[[np.ndarray], float]) -> np.ndarray:
    """The best of 20 powers of the mean inputs, float64 `[channels]`.

    s = mean|X|^r for r = 0, 0.05 … 0.95, divided by sqrt(max s min s), at least 1e-4. The first of them
    changes nothing, so the best one is no worse than rounding.

    Args:
        mean_abs: `[channels]`, the mean absolute value of each input channel.
        error_of: the error that factors lead to.
    """
    candidates = [_power(mean_abs, number / _RATIOS) for number in range(_RATIOS)]
    errors = [error_of(factors) for factors in candidates]
    return candidates[int(np.argmin(errors))]


def _power(mean_abs: np.ndarray, ratio: float) -> np.ndarray:
    powers = np.maximum(mean_abs**ratio, _SMALLEST_FACTOR)
    return np.maximum(powers / np.sqrt(powers.max() * powers.min()), _SMALLEST_FACTOR)


@paddle.no_grad()
def clipped(weight: Tensor, sample: Tensor, bits: int, group_size: int, tick: Tick = no_tick) -> Tensor:
    """Weights with the range of each group narrowed to what gives the smallest error of its part of outputs.

    The range is the largest absolute value times 1, 0.95 … 0.55.

    Args:
        weight: floating point `[out, in]`.
        sample: inputs, float32 `[tokens, in]`.
        bits: what the weights will be rounded to.
        group_size: what will have a scale.
        tick: called all the time.

    Returns:
        float32 `[out, in]`.
    """
    outputs, inputs = weight.shape
    groups = group_count(inputs, group_size)
    # One product for each group and output: of inputs [groups, size, size] with weights [groups, out, size].
    x = sample.reshape([-1, groups, inputs // groups]).transpose([1, 0, 2])
    gram = paddle.matmul(x, x, transpose_x=True)
    found = paddle.empty([outputs, inputs], "float32")
    for start, stop in row_blocks(outputs):
        rows = weight[start:stop].astype("float32").reshape([stop - start, groups, -1])
        best = _narrowed(rows.transpose([1, 0, 2]), gram, bits, tick)
        found[start:stop] = best.transpose([1, 0, 2]).reshape([stop - start, inputs])
    return found


def _narrowed(grouped: Tensor, gram: Tensor, bits: int, tick: Tick) -> Tensor:
    """Weights `[groups, out, size]` with the best range of each group."""
    absmax = grouped.abs().max(axis=-1, keepdim=True)
    highest = limits(bits)[1]
    best, lowest = grouped, None
    for step in range(int(_CLIP_GRID * _MOST_CLIPPED)):
        tick()
        limit = absmax * (1 - step / _CLIP_GRID)
        narrow = paddle.maximum(paddle.minimum(grouped, limit), -limit)
        scale = paddle.where(limit > 0, limit, paddle.ones_like(limit)) / highest
        difference = rounded(narrow / scale, bits) * scale - grouped
        error = (paddle.matmul(difference, gram) * difference).sum(axis=-1, keepdim=True)
        if lowest is None:
            best, lowest = narrow, error
            continue
        better = error < lowest
        best, lowest = paddle.where(better, narrow, best), paddle.where(better, error, lowest)
    return best
