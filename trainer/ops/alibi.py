"""Attention with linear biases (Press et al., arXiv 2108.12409): distance instead of position embeddings.

Each head adds slope * (position of the key - position of the query) to its scores. Softmax ignores what is
the same for a whole row, so any position may stand in for the query's: here that of the last key of a block
of scores, which keeps the numbers small and so exact. Everything is float32, because bfloat16 cannot count
beyond 256.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import paddle
from paddle import Tensor

from trainer.ops.kv_cache import MASKED


def alibi_slopes(heads: int) -> np.ndarray:
    """The slope of every head, float32 `[heads]`.

    For a power of two they are the geometric series that starts at, and has the ratio, 2^(-8/heads). For
    other numbers the series of the next smaller power comes first, then every other slope of the next larger.
    """
    smaller = 2 ** int(math.log2(heads))
    slopes = _series(smaller)
    if smaller < heads:
        slopes += _series(2 * smaller)[::2][: heads - smaller]
    return np.array(slopes, np.float32)


def _series(heads: int) -> list[float]:
    return [2.0 ** (-8.0 * head / heads) for head in range(1, heads + 1)]


@dataclass(frozen=True)
class Alibi:
    """The biases of one forward pass; all layers share them.

    Attributes:
        slopes: float32 `[heads]`.
        positions: int64 `[tokens]`, of the packed tokens.
    """

    slopes: np.ndarray
    positions: np.ndarray
    _made: dict[tuple[bytes, int, int], Tensor] = field(default_factory=dict)

    def add_(
        self, scores: Tensor, first: int, run: tuple[int, int], start: int, end: int, kv_heads: int
    ) -> Tensor:
        """Add bias and causal mask, in place, to scores `[count * kv_heads, (end - start) * group, end]`.

        Args:
            scores: of queries `start..end` and keys `0..end` of every document of a run; `group` query heads
                that share a key head lie side by side.
            first: the packed token that the run begins with.
            run: count and length of its documents.
            start, end: the block.
            kv_heads: key heads.
        """
        count, length = run
        positions = self.positions[first : first + count * length].reshape(count, length)[:, :end]
        distance = positions - positions[:, -1:]
        if (distance == distance[0]).all():
            distance = distance[:1]
        key = distance.tobytes(), start, end
        if key not in self._made:
            self._made[key] = self._bias(distance.astype(np.float32), start, kv_heads)
        rows = scores.shape[1]
        scores = scores.reshape_([count, kv_heads, rows, end]).add_(self._made[key])
        return scores.reshape_([count * kv_heads, rows, end])

    def _bias(self, distance: np.ndarray, start: int, kv_heads: int) -> Tensor:
        """`[documents or 1, kv_heads, rows, end]` for distances `[documents or 1, end]`."""
        end = distance.shape[1]
        group = len(self.slopes) // kv_heads
        slopes = np.tile(self.slopes.reshape(kv_heads, group), (1, end - start))
        bias = slopes[None, :, :, None] * distance[:, None, None, :]
        return paddle.to_tensor(bias + _causal(start, end, group))


@lru_cache(maxsize=64)
def causal_mask(start: int, end: int, group: int) -> Tensor:
    """What to add to the scores of tokens `start..end` and keys `0..end`, float32: `[rows, end]`."""
    return paddle.to_tensor(_causal(start, end, group))


def _causal(start: int, end: int, group: int) -> np.ndarray:
    key = np.arange(end)
    token = np.repeat(np.arange(start, end), group)
    return np.where(key > token[:, None], np.float32(MASKED), np.float32(0))
