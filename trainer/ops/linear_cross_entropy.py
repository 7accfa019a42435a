"""Vocabulary projection and cross entropy in one, without ever holding all the logits.

Rows are taken in chunks: logits, loss and both gradients of a chunk are made while its logits exist, so
memory is `chunk x vocabulary` however long the batch is. Rows without a label are left out before the largest
matrix product of the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import paddle
import paddle.nn.functional as functional
from paddle import Tensor
from paddle.autograd import PyLayer

from trainer.ops.finite import mark_failures

ROWS_PER_CHUNK = 512
_UNLIKELY = 1e-20


@dataclass(frozen=True)
class TokenLoss:
    """Losses of the labelled tokens of a batch.

    Attributes:
        sum: float32 scalar, the sum of the token losses (natural logarithm); differentiable.
        tokens: how many tokens had a label. Divide by the tokens of the whole optimizer step.
        correct: how many labels were the most likely token; None while gradients are recorded.
    """

    sum: Tensor
    tokens: int
    correct: int | None


def linear_cross_entropy(hidden: Tensor, weight: Tensor, labels: Tensor) -> TokenLoss:
    """Cross entropy of `hidden @ weight^T` against `labels`.

    Args:
        hidden: `[tokens, width]`.
        weight: `[vocabulary, width]`.
        labels: int `[tokens]`; negative labels are ignored.
    """
    labels = labels.astype("int64")
    rows = paddle.nonzero(labels >= 0).reshape([-1])
    tokens = rows.shape[0]
    if tokens == 0:
        return TokenLoss(hidden.sum().astype("float32") * 0.0, 0, None if paddle.is_grad_enabled() else 0)
    if tokens < labels.shape[0]:
        hidden, labels = paddle.gather(hidden, rows), paddle.gather(labels, rows)
    if not paddle.is_grad_enabled():
        total, correct = _evaluate(hidden, weight, labels)
        return TokenLoss(total, tokens, correct)
    return TokenLoss(_LinearCrossEntropy.apply(hidden, weight, labels), tokens, None)


def chunks(hidden: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Hidden states and labels, `ROWS_PER_CHUNK` rows at a time."""
    rows = hidden.shape[0]
    for start in range(0, rows, ROWS_PER_CHUNK):
        yield hidden[start : start + ROWS_PER_CHUNK], labels[start : start + ROWS_PER_CHUNK]


def _evaluate(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, int]:
    total = paddle.zeros([], "float32")
    correct = 0
    for rows, targets in chunks(hidden, labels):
        logits = project(rows, weight)
        correct += int((logits.argmax(axis=-1) == targets).sum())
        probabilities = functional.softmax_(logits, axis=-1)
        of_targets = paddle.take_along_axis(probabilities, targets.unsqueeze(1), axis=1).reshape([-1])
        total = total - logarithms_of(of_targets, rows, weight, targets).sum()
    return mark_failures(total, hidden, weight), correct


class _LinearCrossEntropy(PyLayer):
    """The gradients are made in the forward pass and only scaled in the backward pass."""

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        hidden_wanted, weight_wanted = not hidden.stop_gradient, not weight.stop_gradient
        total = paddle.zeros([], "float32")
        grad_hidden, grad_weight = [], None
        for rows, targets in chunks(hidden, labels):
            grad_logits, of_targets = slopes_of(rows, weight, targets)
            total = total - logarithms_of(of_targets, rows, weight, targets).sum()
            if hidden_wanted:
                grad_hidden.append(paddle.matmul(grad_logits, weight))
            if weight_wanted:
                part = paddle.matmul(grad_logits, rows, transpose_x=True).astype("float32")
                grad_weight = part if grad_weight is None else grad_weight.add_(part)
        if grad_weight is not None:
            grad_weight = grad_weight.astype(weight.dtype)
        ctx.gradients = (paddle.concat(grad_hidden) if grad_hidden else None), grad_weight
        return mark_failures(total, hidden, weight)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        return tuple(None if g is None else times_(g, grad) for g in gradients)


def slopes_of(rows: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(logits) - onehot(targets) of a chunk in the dtype of `rows`, and the targets' probabilities."""
    probabilities, places, of_targets = probabilities_of(rows, weight, targets)
    shape = probabilities.shape
    flat = paddle.scatter_(probabilities.reshape_([-1]), places, of_targets - 1.0)
    return flat.reshape_(shape).astype(rows.dtype), of_targets


def probabilities_of(rows: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """softmax(logits) of a chunk, float32; where its targets lie when it is flat; their probabilities."""
    probabilities = functional.softmax_(project(rows, weight), axis=-1)
    count, vocabulary = probabilities.shape
    places = paddle.arange(count, dtype="int64") * vocabulary + targets
    return probabilities, places, paddle.gather(probabilities.reshape([-1]), places)


def logarithms_of(of_targets: Tensor, rows: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """log(probability of the target) of each row.

    Paddle's softmax and cross entropy cut off at a distance of 64 from the largest logit on CPU, so targets
    as unlikely as that are computed once more by log-sum-exp, which takes several times as long. What is not
    finite is told by `mark_failures`.
    """
    found = paddle.log(of_targets)
    unlikely = paddle.nonzero(of_targets < _UNLIKELY).reshape([-1])
    if unlikely.shape[0] == 0:
        return found
    logits = project(paddle.gather(rows, unlikely), weight)
    of_logits = paddle.take_along_axis(logits, paddle.gather(targets, unlikely).unsqueeze(1), axis=1)
    return paddle.scatter(found, unlikely, of_logits.reshape([-1]) - paddle.logsumexp(logits, axis=-1))


def times_(x: Tensor, factor: Tensor) -> Tensor:
    """`x` times a scalar, in place. A GPU keeps the scalar to itself, since asking for it waits for all work;
    on CPU Paddle multiplies by a number four times as fast as by a tensor of one.
    """
    if x.place.is_cpu_place():
        return x.scale_(float(factor))
    return x.multiply_(factor.astype(x.dtype))


def project(rows: Tensor, weight: Tensor) -> Tensor:
    """Logits, float32 `[rows, vocabulary]`."""
    return paddle.matmul(rows, weight, transpose_y=True).astype("float32")
