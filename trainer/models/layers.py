"""Layers that families share besides linear ones. Fresh matrices are zero until weights are loaded or drawn.

So nothing is drawn in vain.
"""

from typing import Literal

import paddle
import paddle.nn.functional as functional
from paddle import Tensor, nn
from paddle.distributed.fleet.layers.mpu.mp_layers import VocabParallelEmbedding

from trainer.models.linear import ZERO
from trainer.models.placement import TensorRank
from trainer.ops.linear_cross_entropy import TokenLoss, linear_cross_entropy, project
from trainer.ops.linear_log_probabilities import linear_log_probabilities
from trainer.ops.split_vocabulary import (
    VocabularyPart,
    split_cross_entropy,
    split_log_probabilities,
    split_logits,
)

HeadOutput = Literal["loss", "metrics", "log_probabilities", "logits"]


class LayerNorm(nn.LayerNorm):
    """Layer normalisation whose weight may be frozen.

    Paddle's CPU kernel gives a wrong gradient of the input when the weight wants none, so a frozen weight
    takes part as one that wants a gradient, which is thrown away.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - Paddle's name
        weight = self.weight
        if weight is not None and weight.stop_gradient and not input.stop_gradient:
            weight = weight.detach()
            weight.stop_gradient = False
        return functional.layer_norm(input, self._normalized_shape, weight, self.bias, self._epsilon)


def vocabulary_part(vocab_size: int, tensor: TensorRank) -> VocabularyPart:
    """The tokens of a rank: equally many on each, the last ones fewer."""
    rows = -(-vocab_size // tensor.size)
    first = tensor.rank * rows
    return VocabularyPart(first, min(rows, vocab_size - first), rows, vocab_size, tensor.group)


class SplitEmbedding(VocabParallelEmbedding):
    """The rows of a token embedding that are a rank's `vocabulary_part`; every rank gets whole embeddings.

    Attributes:
        vocab_size: size of the whole vocabulary.
    """

    def __init__(self, vocab_size: int, width: int, tensor: TensorRank) -> None:
        rows = vocabulary_part(vocab_size, tensor).rows * tensor.size
        super().__init__(rows, width, weight_attr=_zero(), mp_group=tensor.group)
        self.vocab_size = vocab_size


def embedding(vocab_size: int, width: int, tensor: TensorRank | None = None) -> nn.Embedding | SplitEmbedding:
    """A token embedding, `[vocabulary, width]`."""
    if tensor is not None:
        return SplitEmbedding(vocab_size, width, tensor)
    return nn.Embedding(vocab_size, width, weight_attr=_zero())


class Head(nn.Layer):
    """The vocabulary projection, `[vocabulary, width]`, and what is computed with it.

    Attributes:
        vocab_size: size of the whole vocabulary.

    Args:
        tied: the embedding's parameter where the head has none of its own. The layer holds it all the same:
            weights that are spread over processes are gathered for the layers that hold them.
        tensor: the rank that has some of the rows; what is computed is the same on all of them.
    """

    def __init__(
        self, vocab_size: int, width: int, tied: Tensor | None = None, tensor: TensorRank | None = None
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self._part = None if tensor is None else vocabulary_part(vocab_size, tensor)
        if tied is not None:
            self.weight = tied
            return
        rows = vocab_size if self._part is None else self._part.rows
        self.weight = self.create_parameter([rows, width], default_initializer=ZERO)
        if self._part is not None:
            self.weight.is_distributed = True
            self.weight.split_axis = 0

    def forward(self, hidden: Tensor, labels: Tensor | None, what: HeadOutput) -> Tensor:
        """Float32, from hidden states `[tokens, width]` and int64 labels `[tokens]`, -100 = none.

        Args:
            what: "loss", the sum of the token losses, `[1]`; "metrics", that sum and the number of labels
                that are the most likely token, `[2]`; "log_probabilities" of the labels, `[tokens]`;
                "logits", `[tokens, vocabulary]`, which need no labels.
        """
        if what == "logits" or labels is None:
            return self._logits(hidden)
        if what == "log_probabilities":
            return self._log_probabilities(hidden, labels)
        found = self._cross_entropy(hidden, labels)
        if what == "loss":
            return found.sum.reshape([1])
        return paddle.stack([found.sum, paddle.to_tensor(float(found.correct or 0))])

    def _logits(self, hidden: Tensor) -> Tensor:
        if self._part is None:
            return project(hidden, self.weight)
        return split_logits(hidden, self.weight, self._part)

    def _log_probabilities(self, hidden: Tensor, labels: Tensor) -> Tensor:
        if self._part is None:
            return linear_log_probabilities(hidden, self.weight, labels)
        return split_log_probabilities(hidden, self.weight, labels, self._part)

    def _cross_entropy(self, hidden: Tensor, labels: Tensor) -> TokenLoss:
        if self._part is None:
            return linear_cross_entropy(hidden, self.weight, labels)
        return split_cross_entropy(hidden, self.weight, labels, self._part)


def _zero() -> paddle.ParamAttr:
    return paddle.ParamAttr(initializer=ZERO)
