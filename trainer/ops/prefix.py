"""Documents that see learned keys and values before their own tokens (Li and Liang, arXiv 2101.00190).

Every document gets the prefix in front, as more positions of its own, so attention needs no other mask and no
other kernel than without. Queries at these positions are zero, and what comes out there is thrown away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import paddle
from paddle import Tensor

# Keys and values of one layer, each `[prefix tokens, kv_heads * head_dim]`.
KeyValuePair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class PrefixedDocuments:
    """Packed documents, each with `tokens` more positions in front.

    Attributes:
        lengths: of the documents, prefix included.
        positions: int64 `[all tokens]`; the prefix has 0, 1, …, tokens - 1 and the others come after it.
        tokens: length of the prefix.
    """

    lengths: tuple[int, ...]
    positions: np.ndarray
    tokens: int
    _source: Tensor
    _own: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int], positions: np.ndarray, tokens: int) -> "PrefixedDocuments":
        """Plan it for documents of these lengths, whose tokens `[tokens]` have these positions."""
        starts = np.cumsum([0, *lengths])
        prefix = np.arange(tokens)
        source = [np.concatenate([prefix, np.arange(start, end) + tokens]) for start, end in pairwise(starts)]
        order = np.concatenate(source)
        is_own = order >= tokens
        shifted = np.concatenate([prefix, positions + tokens])[order]
        longer = tuple(length + tokens for length in lengths)
        own = paddle.to_tensor(np.flatnonzero(is_own))
        return cls(longer, shifted, tokens, paddle.to_tensor(order), own)

    def attention(
        self, attend: Callable[[Tensor, Tensor, Tensor, int], Tensor], prefix: Sequence[KeyValuePair]
    ) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
        """Attention of the documents' own tokens to the prefix and themselves.

        Args:
            attend: attention over documents of `lengths` at `positions`.
            prefix: keys and values of every layer.
        """

        def with_prefix(q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
            keys, values = prefix[layer]
            nothing = paddle.zeros([self.tokens, q.shape[1]], q.dtype)
            out = attend(self._widen(nothing, q), self._widen(keys, k), self._widen(values, v), layer)
            return paddle.gather(out, self._own)

        return with_prefix

    def _widen(self, prefix: Tensor, own: Tensor) -> Tensor:
        return paddle.gather(paddle.concat([prefix.astype(own.dtype), own]), self._source)
