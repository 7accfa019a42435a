"""A model's forward pass in ordinary operators, which Paddle can trace into a static graph.

What trainers compute with counts tokens on the host and has gradients of its own, which no graph can hold.
The arithmetic is the same: ids [batch, sequence] to logits, every row one document without padding. Norms,
softmax, angles and logits are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as functional
from paddle import Tensor, nn

from trainer.models import CausalLM
from trainer.models.bloom.modeling import Bloom
from trainer.models.gemma.modeling import Gemma

# What is added to the scores of keys that a query does not see.
_UNSEEN = -1e9


def exportable(model: CausalLM) -> nn.Layer:
    """A layer that shares the model's parameters: int64 ids `[batch, sequence]` to logits, float32 `[batch,
    sequence, vocabulary]`.

    Args:
        model: whole, with plain linear layers that are not fused.

    Raises:
        ValueError: it is of a family that has no such layer.
    """
    if isinstance(model, Gemma):
        return _Gemma(model)
    if isinstance(model, Bloom):
        return _Bloom(model)
    raise ValueError(f"got {model.config.model_type}, expected gemma or bloom")


class _Forward(nn.Layer):
    """What both families do alike."""

    def __init__(self, model: CausalLM) -> None:
        super().__init__()
        self.model = model
        config = model.config
        self._heads, self._kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._width = config.head_dim

    def _logits(self, hidden: Tensor) -> Tensor:
        return paddle.matmul(hidden, self.model.head_weight, transpose_y=True).astype("float32")

    def _attention(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Attention of `[batch, sequence, heads, width]`, with `bias` added to scores."""
        group = self._heads // self._kv_heads
        if group > 1:
            k, v = (paddle.repeat_interleave(part, group, axis=2) for part in (k, v))
        q, k, v = (part.transpose([0, 2, 1, 3]) for part in (q, k, v))
        scores = paddle.matmul(q, k, transpose_y=True).astype("float32") * self._width**-0.5 + bias
        out = paddle.matmul(functional.softmax(scores).astype(v.dtype), v)
        return out.transpose([0, 2, 1, 3]).reshape([0, 0, self._heads * self._width])

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape([0, 0, heads, self._width])


class _Gemma(_Forward):
    """Gemma."""

    def __init__(self, model: Gemma) -> None:
        super().__init__(model)
        config = model.config
        exponent = np.arange(0, self._width, 2, dtype=np.float32) / np.float32(self._width)
        frequency = (np.float32(1.0) / np.float32(config.rope_theta) ** exponent).astype(np.float32)
        self.register_buffer("frequency", paddle.to_tensor(frequency), persistable=False)
        self._epsilon = config.rms_norm_eps
        self._alibi = model.alibi_slopes

    def forward(self, ids: Tensor) -> Tensor:
        decoder: Any = self.model.model
        x = decoder.embed_tokens(ids) * self.model._embedding_scale
        positions = paddle.arange(ids.shape[1], dtype="float32")
        bias = _causal(positions, self._alibi)
        turn = None if self._alibi is not None else self._rotation(positions)
        for layer in decoder.layers.values():
            x = x + self._attend(layer.self_attn, self._norm(x, layer.input_layernorm), bias, turn)
            normal, mlp = self._norm(x, layer.post_attention_layernorm), layer.mlp
            x = x + mlp.down_proj(functional.gelu(mlp.gate_proj(normal), True) * mlp.up_proj(normal))
        return self._logits(self._norm(x, decoder.norm))

    def _norm(self, x: Tensor, norm: Any) -> Tensor:
        wide = x.astype("float32")
        scale = paddle.rsqrt((wide * wide).mean(axis=-1, keepdim=True) + self._epsilon)
        return (wide * scale * (1.0 + norm.weight.astype("float32"))).astype(x.dtype)

    def _attend(self, layer: Any, x: Tensor, bias: Tensor, turn: Callable[[Tensor], Tensor] | None) -> Tensor:
        q = self._split(layer.q_proj(x), self._heads)
        k, v = (self._split(part(x), self._kv_heads) for part in (layer.k_proj, layer.v_proj))
        if turn is not None:
            q, k = turn(q), turn(k)
        return layer.o_proj(self._attention(q, k, v, bias))

    def _rotation(self, positions: Tensor) -> Callable[[Tensor], Tensor]:
        angle = positions.unsqueeze(1) * self.frequency
        angle = paddle.concat([angle, angle], axis=1).unsqueeze(1)

        def turn(x: Tensor) -> Tensor:
            first, second = paddle.chunk(x, 2, axis=-1)
            turned = paddle.concat([-second, first], axis=-1)
            return x * paddle.cos(angle).astype(x.dtype) + turned * paddle.sin(angle).astype(x.dtype)

        return turn


class _Bloom(_Forward):
    """BLOOM."""

    def __init__(self, model: Bloom) -> None:
        super().__init__(model)
        self._residual_is_normal = model.config.apply_residual_connection_post_layernorm

    def forward(self, ids: Tensor) -> Tensor:
        decoder: Any = self.model.transformer
        x = decoder.word_embeddings_layernorm(decoder.word_embeddings(ids))
        bias = _causal(paddle.arange(ids.shape[1], dtype="float32"), self.model.alibi_slopes)
        for layer in decoder.h.values():
            normal = layer.input_layernorm(x)
            x = (normal if self._residual_is_normal else x) + self._attend(layer.self_attention, normal, bias)
            normal = layer.post_attention_layernorm(x)
            inner = functional.gelu(layer.mlp.dense_h_to_4h(normal), True)
            x = (normal if self._residual_is_normal else x) + layer.mlp.dense_4h_to_h(inner)
        return self._logits(decoder.ln_f(x))

    def _attend(self, layer: Any, x: Tensor, bias: Tensor) -> Tensor:
        fused = layer.query_key_value(x).reshape([0, 0, self._heads, 3, self._width])
        q, k, v = paddle.unbind(fused, axis=3)
        return layer.dense(self._attention(q, k, v, bias))


def _causal(positions: Tensor, slopes: np.ndarray | None) -> Tensor:
    """What is added to scores: float32 `[1, 1 or heads, sequence, sequence]`."""
    later = positions.unsqueeze(0) > positions.unsqueeze(1)
    bias = (later.astype("float32") * _UNSEEN).unsqueeze([0, 1])
    if slopes is None:
        return bias
    distance = positions.unsqueeze(0) - positions.unsqueeze(1)
    return bias + paddle.to_tensor(slopes).reshape([1, -1, 1, 1]) * distance
