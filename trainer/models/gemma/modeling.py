"""Gemma's decoder: pre-norm layers of rotary grouped-query attention and a GeGLU MLP.

h = E[ids] sqrt(hidden); for every layer h += attention(norm(h)), h += mlp(norm(h)); logits = norm(h) E^T in
float32. Modules and parameters bear the names of the Hugging Face files. Inside, everything is packed tokens
`[tokens, width]`.
"""

import math

import numpy as np
import paddle
from paddle import Tensor, nn

from trainer.models.base import Attend, CausalLM, Stage
from trainer.models.gemma.configuration import GemmaConfig
from trainer.models.heads import Heads
from trainer.models.layers import Head, embedding
from trainer.models.linear import ZERO, column, fused, row, whole
from trainer.models.placement import WHOLE, Placement, TensorRank
from trainer.models.sequence import all_tokens, own_tokens, sees_own_tokens
from trainer.ops.alibi import alibi_slopes
from trainer.ops.geglu import geglu
from trainer.ops.rms_norm import rms_norm
from trainer.ops.rope import RotaryTable, rotary_tables, rotate

# Tables for queries and for keys; None when positions enter as biases.
Rotary = tuple[RotaryTable, ...] | None


class GemmaRMSNorm(nn.Layer):
    """Normalisation with the scale 1 + weight."""

    def __init__(self, config: GemmaConfig, tensor: TensorRank | None) -> None:
        super().__init__()
        self.weight = self.create_parameter([config.hidden_size], default_initializer=ZERO)
        self._epsilon = config.rms_norm_eps
        sees_own_tokens([self.weight], tensor)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self._epsilon)


class GemmaAttention(nn.Layer):
    """Grouped-query attention."""

    def __init__(self, config: GemmaConfig, index: int, tensor: TensorRank | None) -> None:
        super().__init__()
        hidden, bias = config.hidden_size, config.attention_bias
        width = config.num_attention_heads * config.head_dim
        kv_width = config.num_key_value_heads * config.head_dim
        self._heads = Heads.of(config, tensor)
        self._fused = config.fuse_attention_qkv and self._heads.keys_are_split
        if self._fused:
            parts = {"q_proj": width, "k_proj": kv_width, "v_proj": kv_width}
            self.qkv_proj = fused(hidden, parts, tensor, bias)
        else:
            keys = column if self._heads.keys_are_split else whole
            self.q_proj = column(hidden, width, tensor, bias)
            self.k_proj = keys(hidden, kv_width, tensor, bias)
            self.v_proj = keys(hidden, kv_width, tensor, bias)
        self.o_proj = row(width, hidden, tensor, bias)
        self._index = index

    def forward(self, x: Tensor, rotary: Rotary, attend: Attend) -> Tensor:
        q, k, v = self.qkv_proj(x) if self._fused else (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        k, v = self._heads.own_keys(k), self._heads.own_keys(v)
        if rotary is not None:
            query_rotary, key_rotary = rotary
            q, k = rotate(q, query_rotary), rotate(k, key_rotary)
        return self.o_proj(attend(q, k, v, self._index))


class GemmaMLP(nn.Layer):
    """down(gelu(gate(x)) * up(x))."""

    def __init__(self, config: GemmaConfig, tensor: TensorRank | None) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self._fused = config.fuse_attention_ffn
        if self._fused:
            self.gate_up_fused_proj = fused(hidden, {"gate_proj": inner, "up_proj": inner}, tensor)
        else:
            self.gate_proj = column(hidden, inner, tensor)
            self.up_proj = column(hidden, inner, tensor)
        self.down_proj = row(inner, hidden, tensor)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_fused_proj(x) if self._fused else (self.gate_proj(x), self.up_proj(x))
        return self.down_proj(geglu(gate, up))


class GemmaLayer(nn.Layer):
    """One decoder layer."""

    def __init__(self, config: GemmaConfig, index: int, tensor: TensorRank | None) -> None:
        super().__init__()
        self.input_layernorm = GemmaRMSNorm(config, tensor)
        self.self_attn = GemmaAttention(config, index, tensor)
        self.post_attention_layernorm = GemmaRMSNorm(config, tensor)
        self.mlp = GemmaMLP(config, tensor)

    def forward(self, x: Tensor, rotary: Rotary, attend: Attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class GemmaDecoder(nn.Layer):
    """Embedding, layers and the final norm, under the names of the files."""

    def __init__(self, config: GemmaConfig, placement: Placement) -> None:
        super().__init__()
        here = [index for index in range(config.num_hidden_layers) if placement.has(index + 1)]
        has_end, tensor = placement.has(config.num_hidden_layers + 1), placement.tensor
        if placement.has(0) or (has_end and config.tie_word_embeddings):
            self.embed_tokens = embedding(config.vocab_size, config.hidden_size, tensor)
        self.layers = nn.LayerDict({str(index): GemmaLayer(config, index, tensor) for index in here})
        if has_end:
            self.norm = GemmaRMSNorm(config, tensor)


class Gemma(CausalLM):
    """Gemma with its language-model head; see `CausalLM` for how it is called."""

    config: GemmaConfig

    def __init__(self, config: GemmaConfig, placement: Placement = WHOLE) -> None:
        super().__init__(config, placement)
        self.model = GemmaDecoder(config, placement)
        if placement.has(config.num_hidden_layers + 1):
            tied = self.model.embed_tokens.weight if config.tie_word_embeddings else None
            self.lm_head = Head(config.vocab_size, config.hidden_size, tied, placement.tensor)
        if config.alibi:
            self.alibi_slopes = self.heads.own(alibi_slopes(config.num_attention_heads))
        # The factor is rounded to the compute dtype, as in the reference implementation.
        self._embedding_scale = float(paddle.full([], math.sqrt(config.hidden_size), self.parameter_dtype))

    def stages(self) -> list[Stage]:
        layers = self.model.layers.items()
        stages = [
            Stage(0, ("model.embed_tokens",), lambda ids, *_: self._embed(ids)),
            *(Stage(int(index) + 1, (f"model.layers.{index}",), layer) for index, layer in layers),
            Stage(self.config.num_hidden_layers + 1, ("model.norm",), lambda x, *_: self._end(x)),
        ]
        return [stage for stage in stages if self.placement.has(stage.number)]

    def context(self, positions: np.ndarray) -> Rotary:
        config = self.config
        if config.alibi:
            return None
        counts = self.heads.counts
        return rotary_tables(positions, config.head_dim, config.rope_theta, counts, self.parameter_dtype)

    def _embed(self, ids: Tensor) -> Tensor:
        x = own_tokens(self.model.embed_tokens(ids), self.placement.tensor)
        return x * self._embedding_scale

    def _end(self, x: Tensor) -> Tensor:
        return all_tokens(self.model.norm(x), self.placement.tensor)
