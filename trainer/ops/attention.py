"""Causal attention over packed tokens, and attention over a cache when generating.

softmax(q k^T / sqrt(d) + bias) v, each token seeing its own document up to itself. Several query heads share
one key head.

`causal_attention` is the only place that chooses an implementation (`choose`):

* FlashAttention, or FlashMask where documents of different lengths lie in one row, on a GPU in float16 or
  bfloat16. They need a GPU, so a CPU host exercises their choice and their masks only.
* Everywhere else, and always with ALiBi or dropout, the exact blockwise formulation. FlashAttention takes a
  bias in half precision only, in which ALiBi's large distances are wrong.
"""

import math
from enum import Enum

import paddle
import paddle.nn.functional as functional
from paddle import Tensor

from trainer.ops.alibi import Alibi
from trainer.ops.blockwise_attention import blockwise_attention
from trainer.ops.flash_attention import flash_attention, flash_can_run, flashmask_attention
from trainer.ops.kv_cache import KVCache


class Kernel(Enum):
    """How attention is computed."""

    FLASH = "FlashAttention, documents of one length as a batch"
    FLASHMASK = "FlashAttention with FlashMask, documents of any length in one row"
    BLOCKWISE = "blocks of matrix products"


def choose(flash: bool, lengths: tuple[int, ...], alibi: bool, dropout: float) -> Kernel:
    """The kernel for documents of these lengths; `flash` says whether the device has FlashAttention."""
    if not flash or alibi or dropout > 0.0:
        return Kernel.BLOCKWISE
    return Kernel.FLASH if len(set(lengths)) == 1 else Kernel.FLASHMASK


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: tuple[int, ...],
    heads: int,
    kv_heads: int,
    *,
    alibi: Alibi | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of documents that lie one after another.

    Args:
        q: `[tokens, heads * head_dim]`.
        k, v: `[tokens, kv_heads * head_dim]`; `heads` is a multiple of `kv_heads`.
        lengths: tokens of each document; their sum is `tokens`.
        alibi: biases by distance; None: none.
        dropout: share of the attention weights that are dropped, drawn from Paddle's generator.

    Returns:
        `[tokens, heads * head_dim]`, the weighted values of each head side by side.
    """
    flash = flash_can_run(q, q.shape[1] // heads)
    kernel = choose(flash, lengths, alibi is not None, dropout)
    if kernel is Kernel.FLASH:
        return flash_attention(q, k, v, lengths, heads, kv_heads)
    if kernel is Kernel.FLASHMASK:
        return flashmask_attention(q, k, v, lengths, heads, kv_heads)
    return blockwise_attention(q, k, v, lengths, heads, kv_heads, alibi, dropout)


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
    weights = functional.softmax(scores + cache.bias(kv_heads, group), axis=-1).astype(values.dtype)
    out = paddle.matmul(weights, values).reshape([batch, kv_heads, new, group, head_dim])
    return out.transpose([0, 2, 1, 3, 4]).reshape([batch * new, -1])
