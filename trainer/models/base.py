"""What every causal language model offers, and the part of it that is the same in every family."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import paddle
from paddle import Tensor, nn

from trainer.models.weights import Weight, WeightMap
from trainer.ops.attention import cached_attention, causal_attention
from trainer.ops.kv_cache import KVCache
from trainer.ops.linear_cross_entropy import TokenLoss, linear_cross_entropy
from trainer.ops.packing import Packing

# attend(q, k, v, layer): how tokens see each other; q [tokens, heads * head_dim] → the same shape.
Attend = Callable[[Tensor, Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class ModelConfig:
    """What code outside a family reads from its configuration; a family adds fields and defaults.

    Attributes:
        vocab_size: rows of the embedding.
        hidden_size: width of the residual stream.
        num_hidden_layers: decoder layers.
        num_attention_heads: query heads.
        num_key_value_heads: key and value heads; divides the query heads.
        head_dim: width of one head, independent of hidden_size / num_attention_heads.
        initializer_range: standard deviation of fresh weights.
        tie_word_embeddings: the head is the embedding.
        pad_token_id, eos_token_id, bos_token_id: token ids; a model may have several end tokens.
    """

    model_type: ClassVar[str]

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    initializer_range: float
    tie_word_embeddings: bool
    pad_token_id: int | None
    eos_token_id: int | list[int] | None
    bos_token_id: int | None

    def to_dict(self) -> dict[str, Any]:
        """The content of config.json."""
        raise NotImplementedError


class CausalLM(nn.Layer):
    """A decoder with a language-model head.

    A family implements `decode` and `head_weight`. Everywhere: `input_ids` int64 `[batch, sequence]`;
    `position_ids` of the same shape, by default 0, 1, 2, … in each row; `attention_mask` of the same shape,
    nonzero = real token, padding on either side. Results at padding are zero.

    Attributes:
        config: the family's configuration.
        dtype: dtype of the parameters, such as "float32".
        generation_config: content of generation_config.json; kept and written back. None when there is none.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.dtype: str = paddle.get_default_dtype()
        self.generation_config: dict[str, Any] | None = None

    @property
    def head_weight(self) -> Tensor:
        """The vocabulary projection, `[vocabulary, hidden]`."""
        raise NotImplementedError

    def decode(self, input_ids: Tensor, positions: np.ndarray, attend: Attend) -> Tensor:
        """Final hidden states `[tokens, hidden]` of packed ids `[tokens]` at `positions [tokens]`."""
        raise NotImplementedError

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Logits, float32 `[batch, sequence, vocabulary]`."""
        packing = Packing.of(input_ids, position_ids, attention_mask)
        return packing.unpack(self._logits(self._decode_packed(input_ids, packing)))

    def hidden_states(
        self, input_ids: Tensor, position_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """What the head sees: `[batch, sequence, hidden]` after the final norm."""
        packing = Packing.of(input_ids, position_ids, attention_mask)
        return packing.unpack(self._decode_packed(input_ids, packing))

    def loss(
        self,
        input_ids: Tensor,
        labels: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> TokenLoss:
        """Loss of every labelled token.

        Args:
            labels: int64 `[batch, sequence]`; `labels[:, t]` is the token that should follow position t (the
                data is shifted already), -100 where there is none.
        """
        packing = Packing.of(input_ids, position_ids, attention_mask)
        hidden = self._decode_packed(input_ids, packing)
        return linear_cross_entropy(hidden, self.head_weight, packing.pack(labels))

    def new_cache(self, batch: int) -> KVCache:
        """An empty cache for `next_logits`."""
        return KVCache(batch, self.config.num_hidden_layers, self.config.head_dim)

    @paddle.no_grad()
    def next_logits(
        self, ids: np.ndarray, positions: np.ndarray, real: np.ndarray, cache: KVCache | None = None
    ) -> Tensor:
        """Logits after the last column, float32 `[batch, vocabulary]`, for generation.

        Args:
            ids: int64 `[batch, new]`, padded on the left.
            positions: int64 `[batch, new]`.
            real: bool `[batch, new]`, False = padding.
            cache: holds the columns before these and takes these in; None when these are all there are.
        """
        batch, new = ids.shape
        if cache is None:
            masks = paddle.to_tensor(positions), paddle.to_tensor(real.astype(np.int64))
            hidden = self.hidden_states(paddle.to_tensor(ids), *masks)
            return self._logits(hidden[:, -1])
        cache.extend(real)

        def attend(q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
            return cached_attention(q, k, v, layer, cache)

        hidden = self.decode(paddle.to_tensor(ids.reshape(-1)), positions.reshape(-1), attend)
        return self._logits(hidden.reshape([batch, new, -1])[:, -1])

    def parameter_names(self) -> WeightMap:
        """Every parameter by its Hugging Face name."""
        linear = {name for name, layer in self.named_sublayers() if isinstance(layer, nn.Linear)}
        weights = {}
        for name, parameter in self.named_parameters():
            owner, _, kind = name.rpartition(".")
            weights[name] = Weight(name, parameter, transposed=owner in linear and kind == "weight")
        return weights

    def hf_state(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor as it is on disk, one at a time: Hugging Face name and orientation."""
        for name, weight in self.parameter_names().items():
            yield name, weight.turned(weight.parameter)

    def _decode_packed(self, input_ids: Tensor, packing: Packing) -> Tensor:
        config = self.config

        def attend(q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
            return causal_attention(
                q, k, v, packing.lengths, config.num_attention_heads, config.num_key_value_heads
            )

        return self.decode(packing.pack(input_ids), packing.positions, attend)

    def _logits(self, hidden: Tensor) -> Tensor:
        return paddle.matmul(hidden, self.head_weight, transpose_y=True).astype("float32")
