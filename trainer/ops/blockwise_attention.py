"""Exact causal attention in plain matrix products, for every device, with ALiBi and dropout.

Queries go in blocks and a block multiplies only the keys up to its end, so most of the upper triangle is
never computed. Several query heads share one key head: they are folded into rows, so keys and values are
never repeated. Documents of equal length are computed in one batch. Scores and softmax are float32 whatever
the dtype of the inputs.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

import paddle
import paddle.nn.functional as functional
from paddle import Tensor
from paddle.autograd import PyLayer

from trainer.ops.alibi import Alibi, causal_mask
from trainer.ops.finite import mark_failures

QUERY_BLOCK = 128

_OPERATORS: Any = cast(Any, paddle)._C_ops


def blockwise_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: tuple[int, ...],
    heads: int,
    kv_heads: int,
    alibi: Alibi | None,
    dropout: float,
) -> Tensor:
    """See `trainer.ops.attention.causal_attention`."""
    together = _Heads(heads, kv_heads, alibi, dropout)
    runs = equal_runs(lengths)
    if len(runs) == 1:
        return together.attend(q, k, v, 0, runs[0])
    sections = [count * length for count, length in runs]
    qs, ks, vs = (paddle.split(tensor, sections) for tensor in (q, k, v))
    firsts = [sum(sections[:number]) for number in range(len(runs))]
    return paddle.concat([together.attend(qs[i], ks[i], vs[i], firsts[i], run) for i, run in enumerate(runs)])


def equal_runs(lengths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbouring documents of equal length as (count, length); a run is computed in one batch."""
    runs: list[tuple[int, int]] = []
    for length in lengths:
        if runs and runs[-1][1] == length:
            runs[-1] = (runs[-1][0] + 1, length)
        else:
            runs.append((1, length))
    return runs


@dataclass(frozen=True)
class _Heads:
    """What all documents of one call have in common."""

    heads: int
    kv_heads: int
    alibi: Alibi | None
    dropout: float

    def attend(self, q: Tensor, k: Tensor, v: Tensor, first: int, run: tuple[int, int]) -> Tensor:
        """Attention of a run of documents (count, length) that begins with the packed token `first`."""
        group = self.heads // self.kv_heads

        def mask_(scores: Tensor, start: int, end: int) -> Tensor:
            if self.alibi is None:
                return scores.add_(causal_mask(start, end, group))
            return self.alibi.add_(scores, first, run, start, end, self.kv_heads)

        folded = _fold(q, run, self.kv_heads, group), *(_fold(x, run, self.kv_heads, 1) for x in (k, v))
        return _unfold(_BlockwiseAttention.apply(*folded, mask_, self.dropout), run, self.kv_heads)


def _fold(x: Tensor, run: tuple[int, int], kv_heads: int, group: int) -> Tensor:
    """`[tokens, kv_heads * group * head_dim]` → `[count * kv_heads, length * group, head_dim]`."""
    count, length = run
    head_dim = x.shape[1] // (kv_heads * group)
    if kv_heads > 1:
        x = x.reshape([count, length, kv_heads, group * head_dim]).transpose([0, 2, 1, 3])
    return x.reshape([count * kv_heads, length * group, head_dim])


def _unfold(x: Tensor, run: tuple[int, int], kv_heads: int) -> Tensor:
    count, length = run
    if kv_heads > 1:
        x = x.reshape([count, kv_heads, length, -1]).transpose([0, 2, 1, 3])
    return x.reshape([count * length, -1])


class _BlockwiseAttention(PyLayer):
    """q is `[batch, length * group, head_dim]`, k and v are `[batch, length, head_dim]`.

    Row r of q belongs to token r // group. Each block's weights P are kept for the backward pass. Dropout
    multiplies P by 0 or 1 / (1 - rate), and dO V^T by the same.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, mask_, dropout: float) -> Tensor:
        scale = 1.0 / math.sqrt(q.shape[2])
        length = k.shape[1]
        group = q.shape[1] // length
        values = mark_failures(v, q, k)
        outs, blocks = [], []
        for start in range(0, length, QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, length)
            queries = q[:, start * group : end * group] * scale
            scores = paddle.matmul(queries, k[:, :end], transpose_y=True).astype("float32")
            weights = functional.softmax_(mask_(scores, start, end), axis=-1).astype(v.dtype)
            kept = _kept(weights, dropout)
            outs.append(paddle.matmul(weights if kept is None else weights * kept, values[:, :end]))
            blocks.append((start, end, queries, weights, kept))
        ctx.blocks, ctx.group, ctx.scale = blocks, group, scale
        ctx.wanted = [not tensor.stop_gradient for tensor in (q, k, v)]
        ctx.save_for_backward(k, v)
        return paddle.concat(outs, axis=1) if len(outs) > 1 else outs[0]

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        k, v = ctx.saved_tensor()
        grad_q: list[Tensor] = []
        grad_k, grad_v = _TailSum(), _TailSum()
        # From the last block to the first: a block covers all keys of the block before it.
        for start, end, queries, weights, kept in reversed(ctx.blocks):
            block = grad[:, start * ctx.group : end * ctx.group]
            grad_scores = paddle.matmul(block, v[:, :end], transpose_y=True)
            if kept is not None:
                grad_scores = grad_scores.multiply_(kept)
            grad_scores = _OPERATORS.softmax_grad(weights, grad_scores, -1)
            grad_q.append(paddle.matmul(grad_scores, k[:, :end]).scale_(ctx.scale))
            grad_k.add(paddle.matmul(grad_scores, queries, transpose_x=True))
            grad_v.add(paddle.matmul(weights if kept is None else weights * kept, block, transpose_x=True))
        ctx.blocks = None
        gradients = _join(grad_q), grad_k.total(), grad_v.total()
        return tuple(g if wanted else None for g, wanted in zip(gradients, ctx.wanted, strict=True))


def _kept(weights: Tensor, rate: float) -> Tensor | None:
    """What dropout at a rate below 1 multiplies the weights by; None without dropout."""
    if rate == 0.0:
        return None
    drawn = paddle.rand(weights.shape, "float32") >= rate
    return drawn.astype(weights.dtype).scale_(1.0 / (1.0 - rate))


class _TailSum:
    """Adds up tensors `[batch, n, width]` of shrinking n, each onto the first n rows of the sum so far."""

    def __init__(self) -> None:
        self._head: Tensor | None = None
        self._tails: list[Tensor] = []

    def add(self, part: Tensor) -> None:
        if self._head is not None:
            rows = part.shape[1]
            self._tails.append(self._head[:, rows:])
            part = part.add_(self._head[:, :rows])
        self._head = part

    def total(self) -> Tensor:
        return _join([*self._tails, self._head])


def _join(parts: list) -> Tensor:
    """Put together blocks that were made from the last to the first."""
    return paddle.concat(parts[::-1], axis=1) if len(parts) > 1 else parts[0]
