"""Documents that see learned keys and values before their own tokens (Li and Liang, arXiv 2101.00190).

Every document gets the prefix in front, as more positions of its own, so attention needs no other mask and no
other kernel than without. Queries at these positions are zero, and what comes out there is thrown away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import paddle
from paddle import Tensor

# Keys and values of one layer, each `[prefix tokens, kv_heads * head_dim]`.
KeyValuePair = tuple[Tensor, Tensor]

# attend(q, k, v, layer)
Attention = Callable[[Tensor, Tensor, Tensor, int], Tensor]


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

    def attention(self, attend: Attention, prefix: Sequence[KeyValuePair]) -> "PrefixAttention":
        """Attention of the documents' own tokens to the prefix and themselves.

        Args:
            attend: attention over documents of `lengths` at `positions`.
            prefix: keys and values of every layer.
        """
        return PrefixAttention(self, attend, prefix)

    def own(self, x: Tensor) -> Tensor:
        """The rows of the documents' own tokens."""
        return paddle.gather(x, self._own)

    def widened(self, prefix: Tensor, own: Tensor) -> Tensor:
        """The rows of the prefix in front of each document's own."""
        return paddle.gather(paddle.concat([prefix.astype(own.dtype), own]), self._source)


@dataclass(frozen=True)
class PrefixAttention:
    """Attention to a prefix and to the documents themselves; called as any attention is."""

    documents: PrefixedDocuments
    attend: Attention
    prefix: Sequence[KeyValuePair]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        keys, values = self.prefix[layer]
        widened = self.documents.widened
        nothing = paddle.zeros([self.documents.tokens, q.shape[1]], q.dtype)
        out = self.attend(widened(nothing, q), widened(keys, k), widened(values, v), layer)
        return self.documents.own(out)

    def replaced(self, layer: int, pair: KeyValuePair) -> "PrefixAttention":
        """The same with other keys and values for one layer."""
        return replace(self, prefix=[*self.prefix[:layer], pair, *self.prefix[layer + 1 :]])
