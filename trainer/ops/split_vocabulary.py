"""Losses, log-probabilities and logits when the rows of the vocabulary projection are split over processes.

Every rank of a group has the same hidden states and labels and some rows of the weight, so it makes the
logits of its own tokens. A softmax needs the largest logit, the sum of exponentials and the logit of the
label of all ranks: three numbers for each label. As in one process (`trainer.ops.linear_cross_entropy`), rows
come in chunks, and all the logits never exist at once. Gradients of the hidden states are summed over the
ranks here, so they are whole on each of them.

Rows that only fill the weight up, so that every rank has equally many, are no tokens: they get no logits, and
their gradients are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import paddle
import paddle.distributed as distributed
from paddle import Tensor
from paddle.autograd import PyLayer

from trainer.ops.finite import mark_failures
from trainer.ops.linear_cross_entropy import TokenLoss, chunks, project, times_
from trainer.ops.tensor_group import copied, joined_columns


@dataclass(frozen=True)
class VocabularyPart:
    """The tokens whose rows of the projection are here.

    Attributes:
        first: the first of them.
        tokens: how many they are.
        rows: rows of the weight, the same on every rank; those beyond `tokens` mean nothing.
        whole: size of the whole vocabulary.
        group: Paddle's group of the ranks that have the others.
    """

    first: int
    tokens: int
    rows: int
    whole: int
    group: Any

    def own(self, weight: Tensor) -> Tensor:
        """The rows that are tokens."""
        return weight if self.tokens == self.rows else weight[: self.tokens]

    def places(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Which targets `[rows]` are here, and the row of each; 0 for those that are not."""
        here = paddle.logical_and(targets >= self.first, targets < self.first + self.tokens)
        return here, paddle.where(here, targets - self.first, paddle.zeros_like(targets))

    def sum(self, x: Tensor) -> Tensor:
        """`x` summed over the ranks, in place."""
        distributed.all_reduce(x, group=self.group)
        return x

    def largest(self, x: Tensor) -> Tensor:
        """The largest of every rank's `x`."""
        x = x.clone()
        distributed.all_reduce(x, op=distributed.ReduceOp.MAX, group=self.group)
        return x


def split_cross_entropy(hidden: Tensor, weight: Tensor, labels: Tensor, part: VocabularyPart) -> TokenLoss:
    """Cross entropy of `hidden @ all weights^T` against `labels`; the same on every rank.

    Args:
        hidden: `[tokens, width]`, the same on every rank.
        weight: `[part.rows, width]`.
        labels: int `[tokens]`, the same on every rank; negative labels are ignored.
    """
    labels = labels.astype("int64")
    rows = paddle.nonzero(labels >= 0).reshape([-1])
    tokens = rows.shape[0]
    if tokens == 0:
        return TokenLoss(hidden.sum().astype("float32") * 0.0, 0, None if paddle.is_grad_enabled() else 0)
    if tokens < labels.shape[0]:
        hidden, labels = paddle.gather(hidden, rows), paddle.gather(labels, rows)
    if not paddle.is_grad_enabled():
        total, correct = _evaluate(hidden, part.own(weight), labels, part)
        return TokenLoss(total, tokens, correct)
    return TokenLoss(_SplitCrossEntropy.apply(hidden, weight, labels, part), tokens, None)


def split_log_probabilities(hidden: Tensor, weight: Tensor, labels: Tensor, part: VocabularyPart) -> Tensor:
    """log p(label) under softmax(hidden @ all weights^T), float32 `[tokens]`; 0 where there is no label.

    Arguments as those of `split_cross_entropy`.
    """
    labels = labels.astype("int64")
    rows = paddle.nonzero(labels >= 0).reshape([-1])
    if rows.shape[0] == 0:
        return hidden.sum(axis=-1).astype("float32") * 0.0
    if rows.shape[0] == labels.shape[0]:
        return _SplitLogProbabilities.apply(hidden, weight, labels, part)
    picked = paddle.gather(hidden, rows), weight, paddle.gather(labels, rows)
    found = _SplitLogProbabilities.apply(*picked, part)
    return paddle.scatter(paddle.zeros([labels.shape[0]], "float32"), rows, found)


def split_logits(hidden: Tensor, weight: Tensor, part: VocabularyPart) -> Tensor:
    """All logits of hidden states `[tokens, width]`, float32 `[tokens, vocabulary]`, on every rank."""
    own = paddle.matmul(copied(hidden, part.group), weight, transpose_y=True)
    return joined_columns(own, part.group)[:, : part.whole].astype("float32")


def _evaluate(hidden: Tensor, weight: Tensor, labels: Tensor, part: VocabularyPart) -> tuple[Tensor, int]:
    total = paddle.zeros([], "float32")
    correct = 0
    for rows, targets in chunks(hidden, labels):
        logits = project(rows, weight)
        own, best = logits.max(axis=-1), logits.argmax(axis=-1) + part.first
        peak = part.largest(own)
        # The first of the most likely tokens, as argmax has it.
        best = paddle.where(own == peak, best, paddle.full_like(best, part.whole))
        distributed.all_reduce(best, op=distributed.ReduceOp.MIN, group=part.group)
        correct += int((best == targets).sum())
        total = total - _Chunk.of(rows, weight, targets, part, logits, peak).log_probabilities.sum()
    return total, correct


@dataclass(frozen=True)
class _Chunk:
    """The softmax of some rows.

    Attributes:
        exponentials: exp(logit - peak) of this rank's tokens, float32 `[rows, tokens]`.
        normalizers: their sum over all tokens, `[rows]`.
        log_probabilities: of the targets, `[rows]`.
        peak: the largest logit among all tokens, `[rows]`.
    """

    exponentials: Tensor
    normalizers: Tensor
    log_probabilities: Tensor
    peak: Tensor

    @classmethod
    def of(
        cls,
        rows: Tensor,
        weight: Tensor,
        targets: Tensor,
        part: VocabularyPart,
        logits: Tensor | None = None,
        peak: Tensor | None = None,
    ) -> _Chunk:
        """Make it of hidden states and the own tokens' weight; logits that are there already are overwritten.

        What is not finite on one rank is so on all of them.
        """
        logits = project(rows, weight) if logits is None else logits
        peak = part.largest(logits.max(axis=-1)) if peak is None else peak
        here, places = part.places(targets)
        shifted = logits.subtract_(peak.unsqueeze(1))
        of_targets = paddle.take_along_axis(shifted, places.unsqueeze(1), axis=1).reshape([-1])
        of_targets = paddle.where(here, of_targets, paddle.zeros_like(of_targets))
        exponentials = shifted.exp_()
        sums = mark_failures(exponentials.sum(axis=-1), rows, weight)
        normalizers, of_targets = paddle.unbind(part.sum(paddle.stack([sums, of_targets])))
        return cls(exponentials, normalizers, of_targets - paddle.log(normalizers), peak)


class _SplitCrossEntropy(PyLayer):
    """The gradients are made in the forward pass and only scaled in the backward pass."""

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, labels: Tensor, part: VocabularyPart) -> Tensor:
        gradients = _Gradients(hidden, weight, part)
        total = paddle.zeros([], "float32")
        for rows, targets in chunks(hidden, labels):
            chunk = _Chunk.of(rows, gradients.weight, targets, part)
            total = total - chunk.log_probabilities.sum()
            probabilities = chunk.exponentials.multiply_((1.0 / chunk.normalizers).unsqueeze(1))
            gradients.add(rows, _with_targets(probabilities, targets, part, -1.0))
        ctx.gradients = gradients.whole()
        return total

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        return tuple(None if g is None else times_(g, grad) for g in gradients)


class _SplitLogProbabilities(PyLayer):
    """The logits of a chunk are made once more in the backward pass."""

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, labels: Tensor, part: VocabularyPart) -> Tensor:
        found, normalizers, own = [], [], part.own(weight)
        for rows, targets in chunks(hidden, labels):
            chunk = _Chunk.of(rows, own, targets, part)
            found.append(chunk.log_probabilities)
            normalizers.append(chunk.peak + paddle.log(chunk.normalizers))
        ctx.wanted = not hidden.stop_gradient, not weight.stop_gradient
        ctx.save_for_backward(hidden, weight, labels)
        ctx.normalizers, ctx.part = normalizers, part
        return paddle.concat(found)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, labels = ctx.saved_tensor()
        gradients = _Gradients(hidden, weight, ctx.part, ctx.wanted)
        start = 0
        for (rows, targets), normalizer in zip(chunks(hidden, labels), ctx.normalizers, strict=True):
            end = start + rows.shape[0]
            wanted, start = grad[start:end].astype("float32"), end
            logits = project(rows, gradients.weight)
            slopes = logits.subtract_(normalizer.unsqueeze(1)).exp_().multiply_(-wanted.unsqueeze(1))
            gradients.add(rows, _with_targets(slopes, targets, ctx.part, wanted))
        ctx.normalizers = None
        return gradients.whole()


def _with_targets(slopes: Tensor, targets: Tensor, part: VocabularyPart, more: Tensor | float) -> Tensor:
    """`slopes [rows, tokens]` with `more` added to each target that is here, in place."""
    here, places = part.places(targets)
    count, width = slopes.shape
    places = paddle.arange(count, dtype="int64") * width + places
    flat = slopes.reshape_([-1])
    flat = paddle.scatter_(flat, places, paddle.gather(flat, places) + here.astype(flat.dtype) * more)
    return flat.reshape_([count, width])


class _Gradients:
    """Adds up the gradients of the hidden states and of the weight, chunk by chunk.

    Attributes:
        weight: the rows that are tokens.
    """

    def __init__(
        self, hidden: Tensor, weight: Tensor, part: VocabularyPart, wanted: tuple[bool, bool] | None = None
    ) -> None:
        self.weight = part.own(weight)
        self._part = part
        self._wanted = wanted or (not hidden.stop_gradient, not weight.stop_gradient)
        self._hidden: list[Tensor] = []
        self._weight: Tensor | None = None

    def add(self, rows: Tensor, slopes: Tensor) -> None:
        """Take in the gradient of the logits of some rows."""
        slopes = slopes.astype(rows.dtype)
        if self._wanted[0]:
            self._hidden.append(paddle.matmul(slopes, self.weight))
        if self._wanted[1]:
            more = paddle.matmul(slopes, rows, transpose_x=True).astype("float32")
            self._weight = more if self._weight is None else self._weight.add_(more)

    def whole(self) -> tuple[Tensor | None, Tensor | None]:
        """Both gradients, that of the hidden states from all ranks; None for one that is not wanted."""
        hidden = self._part.sum(paddle.concat(self._hidden)) if self._hidden else None
        if self._weight is None:
            return hidden, None
        weight = self._weight.astype(self.weight.dtype)
        if (filling := self._part.rows - self._part.tokens) > 0:
            weight = paddle.concat([weight, paddle.zeros([filling, weight.shape[1]], weight.dtype)])
        return hidden, weight
