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
        mask: float32 `[batch, new, seen]` to add to the scores of the newest tokens: 0 where a token may
            look, a large negative number at padding and at what lies after it.
    """

    def __init__(self, batch: int, layers: int, head_dim: int) -> None:
        self.batch = batch
        self.mask = paddle.zeros([batch, 0, 0])
        self._head_dim = head_dim
        self._real = np.zeros((batch, 0), bool)
        self._keys: list[Tensor | None] = [None] * layers
        self._values: list[Tensor | None] = [None] * layers

    def extend(self, real: np.ndarray) -> None:
        """Announce new tokens before the layers append them: bool `[batch, new]`, False = padding."""
        new = real.shape[1]
        self._real = np.concatenate([self._real, real], axis=1)
        seen = self._real.shape[1]
        future = np.arange(seen) > np.arange(seen - new, seen)[:, None]
        hidden = future[None] | ~self._real[:, None, :]
        self.mask = paddle.to_tensor(np.where(hidden, np.float32(MASKED), np.float32(0)))

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add `[batch * new, kv_heads * head_dim]`; returns all keys and values, `[batch, kv_heads, seen,
        head_dim]`.
        """
        keys = self._keys[layer] = self._grown(self._keys[layer], k)
        values = self._values[layer] = self._grown(self._values[layer], v)
        return keys, values

    def _grown(self, old: Tensor | None, new: Tensor) -> Tensor:
        kv_heads = new.shape[1] // self._head_dim
        new = new.reshape([self.batch, -1, kv_heads, self._head_dim]).transpose([0, 2, 1, 3])
        return new if old is None else paddle.concat([old, new], axis=2)
