"""Vocabulary projection and cross entropy in one, without ever holding all the logits.

Rows are taken in chunks: logits, loss and both gradients of a chunk are made while its logits exist, so
memory is `chunk x vocabulary` however long the batch is. Rows without a label are left out before the largest
matrix product of the model.
"""

from dataclasses import dataclass

import paddle
import paddle.nn.functional as functional
from paddle import Tensor, _C_ops
from paddle.autograd import PyLayer

IGNORED = -100
ROWS_PER_CHUNK = 512


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


def _chunks(hidden: Tensor, labels: Tensor):
    rows = hidden.shape[0]
    for start in range(0, rows, ROWS_PER_CHUNK):
        yield hidden[start : start + ROWS_PER_CHUNK], labels[start : start + ROWS_PER_CHUNK]


def _evaluate(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, int]:
    total = paddle.zeros([], "float32")
    correct = 0
    for rows, targets in _chunks(hidden, labels):
        logits = paddle.matmul(rows, weight, transpose_y=True).astype("float32")
        total = total + functional.cross_entropy(logits, targets, reduction="sum")
        correct += int((logits.argmax(axis=-1) == targets).sum())
    return total, correct


class _LinearCrossEntropy(PyLayer):
    """The gradients are made in the forward pass and only scaled in the backward pass."""

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        ctx.wanted = not hidden.stop_gradient, not weight.stop_gradient
        total = paddle.zeros([], "float32")
        grad_hidden, grad_weight = [], None
        for rows, targets in _chunks(hidden, labels):
            loss, grad_logits = _loss_and_gradient(rows, weight, targets)
            total = total + loss
            if ctx.wanted[0]:
                grad_hidden.append(paddle.matmul(grad_logits, weight))
            if ctx.wanted[1]:
                part = paddle.matmul(grad_logits, rows, transpose_x=True).astype("float32")
                grad_weight = part if grad_weight is None else grad_weight.add_(part)
        if grad_weight is not None:
            grad_weight = grad_weight.astype(weight.dtype)
        ctx.gradients = (paddle.concat(grad_hidden) if grad_hidden else None), grad_weight
        return total

    @staticmethod
    def backward(ctx, grad: Tensor):
        gradients, ctx.gradients = ctx.gradients, None
        scaled = [g * grad.astype(g.dtype) for g, wanted in zip(gradients, ctx.wanted, strict=True) if wanted]
        return tuple(scaled) if len(scaled) > 1 else scaled[0]


def _loss_and_gradient(rows: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Summed loss of a chunk, and softmax(logits) - onehot(targets) in the dtype of `rows`."""
    logits = paddle.matmul(rows, weight, transpose_y=True).astype("float32")
    count, vocabulary = logits.shape
    # The operator behind functional.cross_entropy, called directly because that function drops the softmax.
    softmax, losses = _C_ops.cross_entropy_with_softmax_(
        logits, targets.unsqueeze(1), False, True, True, IGNORED, -1
    )
    flat = softmax.reshape_([-1])
    places = paddle.arange(count, dtype="int64") * vocabulary + targets
    flat = paddle.scatter_(flat, places, paddle.gather(flat, places) - 1.0)
    return losses.sum(), flat.reshape_([count, vocabulary]).astype(rows.dtype)
