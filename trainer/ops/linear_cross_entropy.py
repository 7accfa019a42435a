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
        total = total + _total_loss(of_targets, rows, weight, targets)
    return mark_failures(total, hidden, weight), correct


class _LinearCrossEntropy(PyLayer):
    """The gradients are made in the forward pass and only scaled in the backward pass."""

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        hidden_wanted, weight_wanted = not hidden.stop_gradient, not weight.stop_gradient
        total = paddle.zeros([], "float32")
        grad_hidden, grad_weight = [], None
        for rows, targets in chunks(hidden, labels):
            loss, grad_logits = _loss_and_gradient(rows, weight, targets)
            total = total + loss
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
        return tuple(None if g is None else g * grad.astype(g.dtype) for g in gradients)


def _loss_and_gradient(rows: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Summed loss of a chunk, and softmax(logits) - onehot(targets) in the dtype of `rows`."""
    probabilities = functional.softmax_(project(rows, weight), axis=-1)
    count, vocabulary = probabilities.shape
    places = paddle.arange(count, dtype="int64") * vocabulary + targets
    flat = probabilities.reshape_([-1])
    of_targets = paddle.gather(flat, places)
    flat = paddle.scatter_(flat, places, of_targets - 1.0)
    loss = _total_loss(of_targets, rows, weight, targets)
    return loss, flat.reshape_([count, vocabulary]).astype(rows.dtype)


def _total_loss(of_targets: Tensor, rows: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Sum of -log(probability of the target).

    Paddle's softmax and cross entropy cut off at a distance of 64 from the largest logit on CPU, so targets
    as unlikely as that are computed once more by log-sum-exp. What is not finite is told by `mark_failures`.
    """
    is_unlikely = of_targets < _UNLIKELY
    unlikely = paddle.nonzero(is_unlikely).reshape([-1])
    if unlikely.shape[0] == 0:
        return -paddle.log(of_targets).sum()
    likely = paddle.nonzero(paddle.logical_not(is_unlikely)).reshape([-1])
    logits = project(paddle.gather(rows, unlikely), weight)
    target_logits = paddle.take_along_axis(logits, paddle.gather(targets, unlikely).unsqueeze(1), axis=1)
    far = paddle.logsumexp(logits, axis=-1).sum() - target_logits.sum()
    return far - paddle.log(paddle.gather(of_targets, likely)).sum()


def project(rows: Tensor, weight: Tensor) -> Tensor:
    """Logits, float32 `[rows, vocabulary]`."""
    return paddle.matmul(rows, weight, transpose_y=True).astype("float32")
