"""Which attention heads a process computes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor

from trainer.models.configuration import ModelConfig
from trainer.models.placement import TensorRank
from trainer.ops.tensor_group import copied, shared_rows


@dataclass(frozen=True)
class Heads:
    """The heads of one process. Ranks of a tensor group have equally many query heads.

    Key heads that divide by the size of the group are split like query heads. Otherwise every rank computes
    all of them and takes those that its query heads need: one for each group of query heads, or one for each
    query head where these groups would have different sizes.

    Attributes:
        queries: numbers of the query heads.
        keys: numbers of the key heads, in the order of the query heads; equally many of these share each.
        keys_are_split: whether the projections of keys and values give these heads only, not all.
        kv_heads: key heads of the model.
        head_dim: width of a head.
        tensor: the rank.
    """

    queries: range
    keys: tuple[int, ...]
    keys_are_split: bool
    kv_heads: int
    head_dim: int
    tensor: TensorRank | None

    @classmethod
    def of(cls, config: ModelConfig, tensor: TensorRank | None) -> Heads:
        """The heads of a rank; all of them without a group."""
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        if tensor is None:
            return cls(range(heads), tuple(range(kv_heads)), True, kv_heads, config.head_dim, None)
        count = heads // tensor.size
        queries = range(tensor.rank * count, (tensor.rank + 1) * count)
        wanted = tuple(head * kv_heads // heads for head in queries)
        distinct = tuple(dict.fromkeys(wanted))
        alike = {wanted.count(key) for key in distinct}
        keys = distinct if len(alike) == 1 else wanted
        return cls(queries, keys, kv_heads % tensor.size == 0, kv_heads, config.head_dim, tensor)

    @property
    def counts(self) -> tuple[int, int]:
        """Query heads and key heads."""
        return len(self.queries), len(self.keys)

    def own(self, of_heads: np.ndarray) -> np.ndarray:
        """The entries of this process's query heads, of one for each head."""
        return of_heads[self.queries.start : self.queries.stop]

    def own_keys(self, x: Tensor) -> Tensor:
        """This process's keys or values, `[tokens, keys * head_dim]`, from what the projection gave.

        Args:
            x: already these; or those of all heads, which every rank has, `[tokens, kv_heads * head_dim]`, of
                the rank's own tokens only where tokens are split.
        """
        if self.tensor is None or self.keys_are_split:
            return x
        x = shared_rows(x) if self.tensor.sequence else copied(x, self.tensor.group)
        return self._chosen(x)

    def own_pairs(self, x: Tensor) -> Tensor:
        """This process's keys and values, from `x [rows, pairs * kv_heads * head_dim]`, which every rank has.

        Gives as many pairs of `keys * head_dim` numbers in each row.
        """
        if self.tensor is None:
            return x
        rows = x.shape[0]
        pairs = copied(x, self.tensor.group).reshape([-1, self.kv_heads * self.head_dim])
        return self._chosen(pairs).reshape([rows, -1])

    def _chosen(self, x: Tensor) -> Tensor:
        if self.keys == tuple(range(self.kv_heads)):
            return x
        heads = x.reshape([x.shape[0], self.kv_heads, -1])
        return paddle.index_select(heads, paddle.to_tensor(self.keys), axis=1).reshape([x.shape[0], -1])
