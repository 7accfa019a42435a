"""BLOOM's decoder: pre-norm layers of attention with linear biases and a GELU MLP.

h = norm(E[ids]); for every layer h += dense(attention(norm(h))), h += mlp(norm(h)); logits = norm(h) E^T in
float32. Every linear layer and norm has a bias. Modules and parameters bear the names of the Hugging Face
files. Inside, everything is packed tokens `[tokens, width]`.

Dropouts act in training only. They draw from Paddle's generator, which the training loop seeds before every
step, so a step draws the same numbers in every run; they are drawn for real tokens in the order of the batch,
so padding does not change them, and other micro-batches do.
"""

import paddle
import paddle.nn.functional as functional
from paddle import Tensor, nn

from trainer.models.base import Attend, CausalLM, Stage
from trainer.models.bloom.configuration import BloomConfig
from trainer.models.heads import Heads
from trainer.models.layers import Head, LayerNorm, embedding
from trainer.models.linear import column, row
from trainer.models.placement import WHOLE, Placement, TensorRank
from trainer.models.sequence import all_tokens, own_tokens, random_of_tokens, sees_own_tokens
from trainer.ops.alibi import alibi_slopes


class BloomAttention(nn.Layer):
    """Attention whose fused projection gives, head by head, query, key and value."""

    def __init__(self, config: BloomConfig, index: int, tensor: TensorRank | None) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.query_key_value = column(hidden, 3 * hidden, tensor, bias=True)
        self.dense = row(hidden, hidden, tensor, bias=True)
        self._heads = len(Heads.of(config, tensor).queries)
        self._index = index

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        fused = self.query_key_value(x)
        tokens = fused.shape[0]
        fused = fused.reshape([tokens, self._heads, 3, -1])
        q, k, v = (part.reshape([tokens, -1]) for part in paddle.unbind(fused, axis=2))
        return self.dense(attend(q, k, v, self._index))


class BloomMLP(nn.Layer):
    """Four times as wide inside, with the tanh form of GELU."""

    def __init__(self, config: BloomConfig, tensor: TensorRank | None) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.dense_h_to_4h = column(hidden, 4 * hidden, tensor, bias=True)
        self.dense_4h_to_h = row(4 * hidden, hidden, tensor, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense_4h_to_h(functional.gelu(self.dense_h_to_4h(x), approximate=True))


class BloomLayer(nn.Layer):
    """One decoder layer."""

    def __init__(self, config: BloomConfig, index: int, tensor: TensorRank | None) -> None:
        super().__init__()
        self.input_layernorm = _layer_norm(config, tensor)
        self.self_attention = BloomAttention(config, index, tensor)
        self.post_attention_layernorm = _layer_norm(config, tensor)
        self.mlp = BloomMLP(config, tensor)
        self._tensor = tensor
        self._residual_is_normal = config.apply_residual_connection_post_layernorm
        self._dropout = config.hidden_dropout

    def forward(self, x: Tensor, context: None, attend: Attend) -> Tensor:
        normal = self.input_layernorm(x)
        x = self._add(x, normal, self.self_attention(normal, attend))
        normal = self.post_attention_layernorm(x)
        return self._add(x, normal, self.mlp(normal))

    def _add(self, x: Tensor, normal: Tensor, out: Tensor) -> Tensor:
        if self._dropout > 0.0:
            with random_of_tokens(self._tensor):
                out = functional.dropout(out, self._dropout, training=self.training)
        return (normal if self._residual_is_normal else x) + out


class BloomDecoder(nn.Layer):
    """Embedding, layers and the final norm, under the names of the files."""

    def __init__(self, config: BloomConfig, placement: Placement) -> None:
        super().__init__()
        here = [index for index in range(config.num_hidden_layers) if placement.has(index + 1)]
        has_end, tensor = placement.has(config.num_hidden_layers + 1), placement.tensor
        if placement.has(0) or (has_end and config.tie_word_embeddings):
            self.word_embeddings = embedding(config.vocab_size, config.hidden_size, tensor)
        if placement.has(0):
            self.word_embeddings_layernorm = _layer_norm(config, tensor)
        self.h = nn.LayerDict({str(index): BloomLayer(config, index, tensor) for index in here})
        if has_end:
            self.ln_f = _layer_norm(config, tensor)


class Bloom(CausalLM):
    """BLOOM with its language-model head; see `CausalLM` for how it is called."""

    config: BloomConfig

    def __init__(self, config: BloomConfig, placement: Placement = WHOLE) -> None:
        super().__init__(config, placement)
        self.transformer = BloomDecoder(config, placement)
        if placement.has(config.num_hidden_layers + 1):
            tied = self.transformer.word_embeddings.weight if config.tie_word_embeddings else None
            self.lm_head = Head(config.vocab_size, config.hidden_size, tied, placement.tensor)
        self.alibi_slopes = self.heads.own(alibi_slopes(config.num_attention_heads))

    def stages(self) -> list[Stage]:
        first = ("transformer.word_embeddings", "transformer.word_embeddings_layernorm")
        layers, last = self.transformer.h.items(), self.config.num_hidden_layers + 1
        stages = [
            Stage(0, first, lambda ids, *_: self._embed(ids)),
            *(Stage(int(index) + 1, (f"transformer.h.{index}",), layer) for index, layer in layers),
            Stage(last, ("transformer.ln_f",), lambda x, *_: self._end(x)),
        ]
        return [stage for stage in stages if self.placement.has(stage.number)]

    def _embed(self, ids: Tensor) -> Tensor:
        x = own_tokens(self.transformer.word_embeddings(ids), self.placement.tensor)
        return self.transformer.word_embeddings_layernorm(x)

    def _end(self, x: Tensor) -> Tensor:
        return all_tokens(self.transformer.ln_f(x), self.placement.tensor)


def _layer_norm(config: BloomConfig, tensor: TensorRank | None) -> LayerNorm:
    norm = LayerNorm(config.hidden_size, epsilon=config.layer_norm_epsilon)
    sees_own_tokens(norm.parameters(), tensor)
    return norm
