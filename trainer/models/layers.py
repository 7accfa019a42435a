"""Layers that families share. Fresh parameters are zero until weights are loaded or drawn, so that nothing is
drawn in vain.
"""

from collections.abc import Mapping
from typing import Literal

import paddle
import paddle.nn.functional as functional
from paddle import Tensor, nn

from trainer.ops.bias import add_bias
from trainer.ops.linear_cross_entropy import linear_cross_entropy, project
from trainer.ops.linear_log_probabilities import linear_log_probabilities

ZERO = nn.initializer.Constant(0.0)

HeadOutput = Literal["loss", "metrics", "log_probabilities", "logits"]


class Linear(nn.Linear):
    """A linear layer on packed tokens `[tokens, inputs]`; its weight is `[inputs, outputs]`."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        zero = paddle.ParamAttr(initializer=ZERO)
        super().__init__(inputs, outputs, weight_attr=zero, bias_attr=zero if bias else False)

    def forward(self, x: Tensor) -> Tensor:
        out = paddle.matmul(x, self.weight)
        return out if self.bias is None else add_bias(out, self.bias)


class FusedLinear(Linear):
    """Several linear layers with the same input as one matrix; files store them apart.

    Attributes:
        parts: name of each of them, a sibling of this layer in the files, and its number of outputs.
    """

    def __init__(self, inputs: int, parts: Mapping[str, int], bias: bool = False) -> None:
        super().__init__(inputs, sum(parts.values()), bias)
        self.parts = dict(parts)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        """The outputs of each part."""
        return tuple(paddle.split(super().forward(x), list(self.parts.values()), axis=1))


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


def embedding(vocab_size: int, width: int) -> nn.Embedding:
    """A token embedding, `[vocabulary, width]`."""
    return nn.Embedding(vocab_size, width, weight_attr=paddle.ParamAttr(initializer=ZERO))


class Head(nn.Layer):
    """The vocabulary projection, `[vocabulary, width]`, and what is computed with it.

    Args:
        tied: the embedding's parameter where the head has none of its own. The layer holds it all the same:
            weights that are spread over processes are gathered for the layers that hold them.
    """

    def __init__(self, vocab_size: int, width: int, tied: Tensor | None = None) -> None:
        super().__init__()
        fresh = tied is None
        self.weight = self.create_parameter([vocab_size, width], default_initializer=ZERO) if fresh else tied

    def forward(self, hidden: Tensor, labels: Tensor | None, what: HeadOutput) -> Tensor:
        """Float32, from hidden states `[tokens, width]` and int64 labels `[tokens]`, -100 = none.

        Args:
            what: "loss", the sum of the token losses, `[1]`; "metrics", that sum and the number of labels
                that are the most likely token, `[2]`; "log_probabilities" of the labels, `[tokens]`;
                "logits", `[tokens, vocabulary]`, which need no labels.
        """
        if what == "logits" or labels is None:
            return project(hidden, self.weight)
        if what == "log_probabilities":
            return linear_log_probabilities(hidden, self.weight, labels)
        found = linear_cross_entropy(hidden, self.weight, labels)
        if what == "loss":
            return found.sum.reshape([1])
        return paddle.stack([found.sum, paddle.to_tensor(float(found.correct or 0))])
