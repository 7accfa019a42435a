"""Keys and values of the tokens that a generating model has already seen."""

import numpy as np
import paddle
from paddle import Tensor

# Added to the scores of what must not be seen. Finite, so that a row that sees nothing gives no NaN.
MASKED = -1e30


class KVCache:
    """Cache of a batch of rows, padding included.

    Attributes:
        batch: number of rows.
    """

    def __init__(
        self, batch: int, layers: int, head_dim: int, alibi_slopes: np.ndarray | None = None
    ) -> None:
        """An empty cache; `alibi_slopes` float32 `[heads]` when the model attends with linear biases."""
        self.batch = batch
        self._head_dim = head_dim
        self._slopes = alibi_slopes
        self._real = np.zeros((batch, 0), bool)
        self._positions = np.zeros((batch, 0), np.int64)
        self._new = 0
        self._bias: Tensor | None = None
        self._keys: list[Tensor | None] = [None] * layers
        self._values: list[Tensor | None] = [None] * layers

    def extend(self, real: np.ndarray, positions: np.ndarray) -> None:
        """Announce new tokens before the layers append them.

        Args:
            real: bool `[batch, new]`, False = padding.
            positions: int64 `[batch, new]`.
        """
        self._new = real.shape[1]
        self._real = np.concatenate([self._real, real], axis=1)
        self._positions = np.concatenate([self._positions, positions], axis=1)
        self._bias = None

    def bias(self, kv_heads: int, group: int) -> Tensor:
        """What to add to the scores of the newest tokens: a large negative number at padding and at what lies
        after a token, and ALiBi elsewhere.

        float32 `[batch, kv_heads or 1, new * group, seen]`; `group` query heads share a key head.
        """
        if self._bias is None:
            self._bias = paddle.to_tensor(self._mask(group) + self._distances(kv_heads, group))
        return self._bias

    def _mask(self, group: int) -> np.ndarray:
        seen = self._real.shape[1]
        future = np.arange(seen) > np.arange(seen - self._new, seen)[:, None]
        hidden = future[None] | ~self._real[:, None, :]
        mask = np.where(hidden, np.float32(MASKED), np.float32(0))
        return np.repeat(mask, group, axis=1)[:, None]

    def _distances(self, kv_heads: int, group: int) -> np.ndarray:
        """Slope times distance to the last position; see `trainer.ops.alibi`."""
        if self._slopes is None:
            return np.zeros((1, 1, 1, 1), np.float32)
        slopes = np.tile(self._slopes.reshape(kv_heads, group), (1, self._new))
        distance = (self._positions - self._positions[:, -1:]).astype(np.float32)
        return slopes[None, :, :, None] * distance[:, None, None, :]

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add `[batch * new, kv_heads * head_dim]`; returns all keys and values, `[batch, kv_heads, seen,
        head_dim]`.
        """
        keys = self._keys[layer] = self._grown(self._keys[layer], k)
        values = self._values[layer] = self._grown(self._values[layer], v)
        return keys, values

    def select(self, rows: np.ndarray) -> None:
        """Go on with these rows, int64, in this order; a row may be taken several times or not at all."""
        self.batch = len(rows)
        self._real, self._positions, self._bias = self._real[rows], self._positions[rows], None
        index = paddle.to_tensor(rows)
        for tensors in (self._keys, self._values):
            tensors[:] = [None if x is None else paddle.index_select(x, index, axis=0) for x in tensors]

    def _grown(self, old: Tensor | None, new: Tensor) -> Tensor:
        kv_heads = new.shape[1] // self._head_dim
        new = new.reshape([self.batch, -1, kv_heads, self._head_dim]).transpose([0, 2, 1, 3])
        return new if old is None else paddle.concat([old, new], axis=2)
