"""Causal attention over packed tokens, and attention over a cache when generating.

softmax(q k^T / sqrt(d)) v, each token seeing its own document up to itself. Several query heads share one key
head: they are folded into rows, so keys and values are never repeated.

`causal_attention` is the only place that chooses an implementation:

* FlashAttention on a GPU in float16 or bfloat16. It needs a GPU, so the CPU test suite does not reach it.
* Everywhere else an exact blockwise formulation in plain matrix products. Queries go in blocks and a block
  multiplies only the keys up to its end, so most of the upper triangle is never computed.
"""

import math
from functools import lru_cache

import numpy as np
import paddle
import paddle.nn.functional as functional
from paddle import Tensor
from paddle.autograd import PyLayer

from trainer.ops.kv_cache import MASKED, KVCache

QUERY_BLOCK = 128


def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], heads: int, kv_heads: int
) -> Tensor:
    """Attention of documents that lie one after another.

    Args:
        q: `[tokens, heads * head_dim]`.
        k, v: `[tokens, kv_heads * head_dim]`; `heads` is a multiple of `kv_heads`.
        lengths: tokens of each document; their sum is `tokens`.

    Returns:
        `[tokens, heads * head_dim]`, the weighted values of each head side by side.
    """
    if q.place.is_gpu_place() and q.dtype in (paddle.float16, paddle.bfloat16):
        return _flash_attention(q, k, v, lengths, heads, kv_heads)
    runs = _equal_runs(lengths)
    if len(runs) == 1:
        return _attend_run(q, k, v, runs[0], heads, kv_heads)
    sections = [count * length for count, length in runs]
    qs, ks, vs = (paddle.split(tensor, sections) for tensor in (q, k, v))
    outs = [_attend_run(qs[i], ks[i], vs[i], run, heads, kv_heads) for i, run in enumerate(runs)]
    return paddle.concat(outs)


def cached_attention(q: Tensor, k: Tensor, v: Tensor, layer: int, cache: KVCache) -> Tensor:
    """Attention of the newest tokens of each row to everything in the cache. Not differentiable by design.

    Args:
        q: `[batch * new, heads * head_dim]`, the new tokens of one row after another.
        k, v: `[batch * new, kv_heads * head_dim]`; they are appended to the cache of `layer`.
    """
    batch, new = cache.batch, q.shape[0] // cache.batch
    keys, values = cache.append(layer, k, v)
    kv_heads, head_dim = keys.shape[1], keys.shape[3]
    group = q.shape[1] // (kv_heads * head_dim)
    rows = q.reshape([batch, new, kv_heads, group, head_dim]).transpose([0, 2, 1, 3, 4])
    rows = rows.reshape([batch, kv_heads, new * group, head_dim])
    scores = paddle.matmul(rows, keys, transpose_y=True).astype("float32") / math.sqrt(head_dim)
    mask = paddle.repeat_interleave(cache.mask, group, axis=1).unsqueeze(1)
    weights = functional.softmax(scores + mask, axis=-1).astype(values.dtype)
    out = paddle.matmul(weights, values).reshape([batch, kv_heads, new, group, head_dim])
    return out.transpose([0, 2, 1, 3, 4]).reshape([batch * new, -1])


def _flash_attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], heads: int, kv_heads: int
) -> Tensor:
    from paddle.nn.functional.flash_attention import flash_attn_unpadded

    tokens, head_dim = q.shape[0], q.shape[1] // heads
    starts = paddle.to_tensor(np.cumsum((0, *lengths)).astype(np.int32), place=q.place)
    out, _ = flash_attn_unpadded(
        q.reshape([tokens, heads, head_dim]),
        k.reshape([tokens, kv_heads, head_dim]),
        v.reshape([tokens, kv_heads, head_dim]),
        starts,
        starts,
        max(lengths),
        max(lengths),
        1.0 / math.sqrt(head_dim),
        causal=True,
    )
    return out.reshape([tokens, heads * head_dim])


def _equal_runs(lengths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbouring documents of equal length as (count, length); a run is computed in one batch."""
    runs: list[tuple[int, int]] = []
    for length in lengths:
        if runs and runs[-1][1] == length:
            runs[-1] = (runs[-1][0] + 1, length)
        else:
            runs.append((1, length))
    return runs


def _attend_run(q: Tensor, k: Tensor, v: Tensor, run: tuple[int, int], heads: int, kv_heads: int) -> Tensor:
    group = heads // kv_heads
    out = _BlockwiseAttention.apply(
        _fold(q, run, kv_heads, group), _fold(k, run, kv_heads, 1), _fold(v, run, kv_heads, 1), group
    )
    return _unfold(out, run, kv_heads, group)


def _fold(x: Tensor, run: tuple[int, int], kv_heads: int, group: int) -> Tensor:
    """`[tokens, kv_heads * group * head_dim]` → `[count * kv_heads, length * group, head_dim]`."""
    count, length = run
    head_dim = x.shape[1] // (kv_heads * group)
    if kv_heads > 1:
        x = x.reshape([count, length, kv_heads, group * head_dim]).transpose([0, 2, 1, 3])
    return x.reshape([count * kv_heads, length * group, head_dim])


def _unfold(x: Tensor, run: tuple[int, int], kv_heads: int, group: int) -> Tensor:
    count, length = run
    if kv_heads > 1:
        x = x.reshape([count, kv_heads, length, -1]).transpose([0, 2, 1, 3])
    return x.reshape([count * length, -1])


class _BlockwiseAttention(PyLayer):
    """q is `[batch, length * group, head_dim]`, k and v are `[batch, length, head_dim]`.

    Row r of q belongs to token r // group. The backward pass uses dS = P * (dO V^T - rowsum(dO * O)), so it
    needs only the outputs and the weights P.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, group: int) -> Tensor:
        scale = 1.0 / math.sqrt(q.shape[2])
        length = k.shape[1]
        outs, blocks = [], []
        for start in range(0, length, QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, length)
            queries = q[:, start * group : end * group] * scale
            scores = paddle.matmul(queries, k[:, :end], transpose_y=True)
            weights = functional.softmax_(scores.add_(_causal_mask(start, end, group, q.dtype)), axis=-1)
            out = paddle.matmul(weights, v[:, :end])
            outs.append(out)
            blocks.append((start, end, queries, weights, out))
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
        for start, end, queries, weights, out in reversed(ctx.blocks):
            block = grad[:, start * ctx.group : end * ctx.group]
            grad_scores = paddle.matmul(block, v[:, :end], transpose_y=True)
            grad_scores = grad_scores.subtract_(_row_sums(block * out)).multiply_(weights)
            grad_q.append(paddle.matmul(grad_scores, k[:, :end]).scale_(ctx.scale))
            grad_k.add(paddle.matmul(grad_scores, queries, transpose_x=True))
            grad_v.add(paddle.matmul(weights, block, transpose_x=True))
        ctx.blocks = None
        gradients = _join(grad_q), grad_k.total(), grad_v.total()
        return tuple(g if wanted else None for g, wanted in zip(gradients, ctx.wanted, strict=True))


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


def _row_sums(x: Tensor) -> Tensor:
    return paddle.matmul(x, paddle.ones([x.shape[-1], 1], x.dtype))


@lru_cache(maxsize=64)
def _causal_mask(start: int, end: int, group: int, dtype: paddle.dtype) -> Tensor:
    """What to add to the scores of tokens `start..end` and keys `0..end`: `[(end - start) * group, end]`."""
    key = np.arange(end)
    token = np.repeat(np.arange(start, end), group)
    return paddle.to_tensor(np.where(key > token[:, None], np.float32(MASKED), np.float32(0))).astype(dtype)
