"""NEFTune: noise on the embeddings in training (Jain et al., arXiv 2310.05914).

To every embedding of an example of length L, uniform noise between -m and m is added, m = alpha / sqrt(L d)
with d the hidden size. L is the example's own length, so padding and packing do not change the noise; it is
drawn from Paddle's generator, which is seeded by run and step.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import paddle
from paddle import Tensor

from trainer.models.base import CausalLM
from trainer.ops.packing import Packing


class EmbeddingNoise:
    """Adds noise to what the embedding of a model gives while the model trains.

    Attributes:
        alpha: strength.
    """

    def __init__(self, model: CausalLM, alpha: float) -> None:
        self.alpha = alpha
        self._model = model
        self._lengths = np.zeros(0)
        embedding = dict(model.named_sublayers())[model.stages()[0].modules[0]]
        embedding.register_forward_post_hook(cast(Any, self._add))
        model.before_pass = self._expect

    def _expect(self, packing: Packing) -> None:
        """Note the lengths of the examples that the next forward pass works on."""
        self._lengths = np.repeat(packing.lengths, packing.lengths)

    def _add(self, layer: Any, inputs: Any, embedded: Tensor) -> Tensor | None:
        if not self._model.training:
            return None
        most = self.alpha / np.sqrt(self._lengths * embedded.shape[-1])
        noise = paddle.uniform(embedded.shape, "float32", min=-1.0, max=1.0)
        noise = noise * paddle.to_tensor(most.astype(np.float32)).unsqueeze(-1)
        return embedded + noise.astype(embedded.dtype)
