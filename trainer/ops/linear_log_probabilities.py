"""Vocabulary projection and log-probabilities in one, without ever holding all the logits.

Like `trainer.ops.linear_cross_entropy`, for losses that are no sum over tokens: what each token's
log-probability is worth is known only when gradients come back, so the logits of a chunk are made once more
in the backward pass. Between the passes one number a token is kept. Rows without a label are left out.
"""

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from trainer.ops.finite import mark_failures
from trainer.ops.linear_cross_entropy import chunks, logarithms_of, probabilities_of, slopes_of


def linear_log_probabilities(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """log p(label) under softmax(hidden @ weight^T), float32 `[tokens]`; 0 where there is no label.

    Args:
        hidden: `[tokens, width]`.
        weight: `[vocabulary, width]`.
        labels: int `[tokens]`; negative labels are ignored.
    """
    labels = labels.astype("int64")
    rows = paddle.nonzero(labels >= 0).reshape([-1])
    if rows.shape[0] == 0:
        return hidden.sum(axis=-1).astype("float32") * 0.0
    if rows.shape[0] == labels.shape[0]:
        return _LinearLogProbabilities.apply(hidden, weight, labels)
    found = _LinearLogProbabilities.apply(paddle.gather(hidden, rows), weight, paddle.gather(labels, rows))
    return paddle.scatter(paddle.zeros([labels.shape[0]], "float32"), rows, found)


class _LinearLogProbabilities(PyLayer):
    """A row's worth multiplies hidden states and their gradients, which are narrow, and never the logits."""

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        found = []
        for rows, targets in chunks(hidden, labels):
            _, _, of_targets = probabilities_of(rows, weight, targets)
            found.append(logarithms_of(of_targets, rows, weight, targets))
        ctx.wanted = not hidden.stop_gradient, not weight.stop_gradient
        ctx.save_for_backward(hidden, weight, labels)
        return mark_failures(paddle.concat(found), hidden, weight)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, labels = ctx.saved_tensor()
        hidden_wanted, weight_wanted = ctx.wanted
        grad_hidden, grad_weight, start = [], None, 0
        for rows, targets in chunks(hidden, labels):
            end = start + rows.shape[0]
            worth, start = -grad[start:end].unsqueeze(1).astype(rows.dtype), end
            slopes, _ = slopes_of(rows, weight, targets)
            if hidden_wanted:
                grad_hidden.append(paddle.matmul(slopes, weight).multiply_(worth))
            if weight_wanted:
                part = paddle.matmul(slopes, rows * worth, transpose_x=True).astype("float32")
                grad_weight = part if grad_weight is None else grad_weight.add_(part)
        return (
            paddle.concat(grad_hidden) if grad_hidden else None,
            None if grad_weight is None else grad_weight.astype(weight.dtype),
        )
