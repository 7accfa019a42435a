"""Gemma's decoder: pre-norm layers of rotary grouped-query attention and a GeGLU MLP.

h = E[ids] sqrt(hidden); for every layer h += attention(norm(h)), h += mlp(norm(h)); logits = norm(h) E^T in
float32. Modules and parameters bear the names of the Hugging Face files. Inside, everything is packed tokens
`[tokens, width]`.
"""

import math

import numpy as np
import paddle
from paddle import Tensor, nn

from trainer.models.base import Attend, CausalLM
from trainer.models.gemma.configuration import GemmaConfig
from trainer.ops.geglu import geglu
from trainer.ops.rms_norm import rms_norm
from trainer.ops.rope import RotaryTable, rotary_tables, rotate

# Fresh parameters are zero until weights are loaded or drawn, so that nothing is drawn in vain.
_ZERO = nn.initializer.Constant(0.0)


class GemmaRMSNorm(nn.Layer):
    """Normalisation with the scale 1 + weight."""

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__()
        self.weight = self.create_parameter([config.hidden_size], default_initializer=_ZERO)
        self._epsilon = config.rms_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self._epsilon)


class GemmaAttention(nn.Layer):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: GemmaConfig, index: int) -> None:
        super().__init__()
        hidden, bias = config.hidden_size, config.attention_bias
        width = config.num_attention_heads * config.head_dim
        kv_width = config.num_key_value_heads * config.head_dim
        self.q_proj = _linear(hidden, width, bias)
        self.k_proj = _linear(hidden, kv_width, bias)
        self.v_proj = _linear(hidden, kv_width, bias)
        self.o_proj = _linear(width, hidden, bias)
        self._index = index

    def forward(self, x: Tensor, rotary: tuple[RotaryTable, ...], attend: Attend) -> Tensor:
        query_rotary, key_rotary = rotary
        q = rotate(self.q_proj(x), query_rotary)
        k = rotate(self.k_proj(x), key_rotary)
        return self.o_proj(attend(q, k, self.v_proj(x), self._index))


class GemmaMLP(nn.Layer):
    """down(gelu(gate(x)) * up(x))."""

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = _linear(hidden, inner)
        self.up_proj = _linear(hidden, inner)
        self.down_proj = _linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(geglu(self.gate_proj(x), self.up_proj(x)))


class GemmaLayer(nn.Layer):
    """One decoder layer."""

    def __init__(self, config: GemmaConfig, index: int) -> None:
        super().__init__()
        self.input_layernorm = GemmaRMSNorm(config)
        self.self_attn = GemmaAttention(config, index)
        self.post_attention_layernorm = GemmaRMSNorm(config)
        self.mlp = GemmaMLP(config)

    def forward(self, x: Tensor, rotary: tuple[RotaryTable, ...], attend: Attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class GemmaDecoder(nn.Layer):
    """Embedding, layers and the final norm."""

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__()
        zero = paddle.ParamAttr(initializer=_ZERO)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, weight_attr=zero)
        self.layers = nn.LayerList([GemmaLayer(config, index) for index in range(config.num_hidden_layers)])
        self.norm = GemmaRMSNorm(config)
        # The factor is rounded to the compute dtype, as in the reference implementation.
        self._embedding_scale = float(paddle.to_tensor(math.sqrt(config.hidden_size), self._dtype))

    def forward(self, input_ids: Tensor, rotary: tuple[RotaryTable, ...], attend: Attend) -> Tensor:
        hidden = self.embed_tokens(input_ids) * self._embedding_scale
        for layer in self.layers:
            hidden = layer(hidden, rotary, attend)
        return self.norm(hidden)


class GemmaHead(nn.Layer):
    """A head that is not the embedding: `[vocabulary, hidden]`, like the embedding."""

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__()
        self.weight = self.create_parameter(
            [config.vocab_size, config.hidden_size], default_initializer=_ZERO
        )


class Gemma(CausalLM):
    """Gemma with its language-model head; see `CausalLM` for how it is called."""

    config: GemmaConfig

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__(config)
        self.model = GemmaDecoder(config)
        if not config.tie_word_embeddings:
            self.lm_head = GemmaHead(config)

    @property
    def head_weight(self) -> Tensor:
        return (self.model.embed_tokens if self.config.tie_word_embeddings else self.lm_head).weight

    def decode(self, input_ids: Tensor, positions: np.ndarray, attend: Attend) -> Tensor:
        config = self.config
        heads = config.num_attention_heads, config.num_key_value_heads
        rotary = rotary_tables(positions, config.head_dim, config.rope_theta, heads, self.head_weight.dtype)
        return self.model(input_ids, rotary, attend)


def _linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    zero = paddle.ParamAttr(initializer=_ZERO)
    return nn.Linear(inputs, outputs, weight_attr=zero, bias_attr=zero if bias else False)
