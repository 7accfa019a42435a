"""The trainable parameters of a prefix, and how keys and values come out of them.

Either the keys and values are the parameters, or a small network computes them from an embedding of each
prefix token: tanh(E W1 + b1) W2 + b2, which trains more steadily and is needed in training only.
"""

from __future__ import annotations

import zlib

import numpy as np
import paddle
from paddle import Tensor, nn

from trainer.config.adapters import PrefixSettings
from trainer.models.linear import ZERO
from trainer.models.weights import Weight, WeightMap

# PEFT's name for the keys and values of all layers.
PROMPT = "prompt_embeddings"


def disk_shapes(settings: PrefixSettings) -> dict[str, list[int]]:
    """The shapes on disk of the parameters that an encoder with these settings has, by name."""
    outputs = 2 * settings.layers * settings.width
    if settings.projection is None:
        return {PROMPT: [settings.tokens, outputs]}
    return {
        "embedding.weight": [settings.tokens, settings.width],
        "transform.0.weight": [settings.projection, settings.width],
        "transform.0.bias": [settings.projection],
        "transform.2.weight": [outputs, settings.projection],
        "transform.2.bias": [outputs],
    }


class PrefixEncoder(nn.Layer):
    """Gives float32 `[tokens, 2 * layers * width]`: for each layer keys, then values, heads side by side.

    That is the order in which PEFT stores a prefix. Matrices of the network begin as N(0, spread), as the
    keys and values do; biases as 0.
    """

    def __init__(self, settings: PrefixSettings) -> None:
        super().__init__()
        outputs = 2 * settings.layers * settings.width
        self.projected = settings.projection is not None
        if settings.projection is None:
            self.embedding = self._parameter(settings.tokens, outputs)
        else:
            self.embedding = self._parameter(settings.tokens, settings.width)
            self.inner = self._parameter(settings.width, settings.projection)
            self.inner_bias = self._parameter(settings.projection)
            self.outer = self._parameter(settings.projection, outputs)
            self.outer_bias = self._parameter(outputs)

    def forward(self) -> Tensor:
        if not self.projected:
            return self.embedding
        inner = paddle.tanh(paddle.matmul(self.embedding, self.inner) + self.inner_bias)
        return paddle.matmul(inner, self.outer) + self.outer_bias

    def weights(self) -> WeightMap:
        """The parameters by their names on disk."""
        if not self.projected:
            return {PROMPT: Weight(PROMPT, self.embedding, transposed=False)}
        kinds = {
            "embedding.weight": self.embedding,
            "transform.0.weight": self.inner,
            "transform.0.bias": self.inner_bias,
            "transform.2.weight": self.outer,
            "transform.2.bias": self.outer_bias,
        }
        return {
            name: Weight(name, parameter, transposed=name in ("transform.0.weight", "transform.2.weight"))
            for name, parameter in kinds.items()
        }

    def draw(self, seed: int, spread: float) -> None:
        """Fresh numbers, from the seed and each tensor's name alone."""
        for name, weight in self.weights().items():
            if weight.parameter.ndim > 1:
                generator = np.random.default_rng((seed, zlib.crc32(name.encode())))
                drawn = generator.standard_normal(weight.disk_shape, dtype=np.float32)
                weight.fill(paddle.to_tensor(drawn * np.float32(spread)))

    def _parameter(self, *shape: int) -> Tensor:
        return self.create_parameter(list(shape), dtype="float32", default_initializer=ZERO)
