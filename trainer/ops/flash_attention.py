"""FlashAttention (Dao, arXiv 2307.08691) and FlashMask (Wang et al., arXiv 2410.01359) on a GPU.

Both need a GPU of compute capability 8 or later and float16 or bfloat16, so a CPU host runs neither; what is
computed for them on the way, `start_rows`, is tested everywhere.
"""

from typing import cast

import numpy as np
import paddle
from paddle import Tensor

MAX_HEAD_DIM = 256
_HEAD_DIM_STEP = 8
_CAPABILITY = (8, 0)


def flash_can_run(q: Tensor, head_dim: int) -> bool:
    """Whether the device, the dtype and the width of a head are among those the kernels were written for."""
    return (
        q.place.is_gpu_place()
        and q.dtype in (paddle.float16, paddle.bfloat16)
        and fits_flash(head_dim)
        and paddle.device.cuda.get_device_capability() >= _CAPABILITY
    )


def fits_flash(head_dim: int) -> bool:
    """Whether the kernels take heads of this width."""
    return head_dim <= MAX_HEAD_DIM and head_dim % _HEAD_DIM_STEP == 0


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], heads: int, kv_heads: int
) -> Tensor:
    """Documents of one length, as a batch; arguments as those of `causal_attention`."""
    from paddle.nn.functional.flash_attention import flash_attention as kernel

    shape = [len(lengths), lengths[0]]
    query, key, value = _heads(shape, q, k, v, heads, kv_heads)
    out, _ = kernel(query, key, value, causal=True)
    return out.reshape([q.shape[0], -1])


def flashmask_attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], heads: int, kv_heads: int
) -> Tensor:
    """Documents of any lengths, as one row; arguments as those of `causal_attention`."""
    from paddle.nn.functional.flash_attention import flashmask_attention as kernel

    rows = paddle.to_tensor(start_rows(lengths), place=q.place)
    query, key, value = _heads([1, q.shape[0]], q, k, v, heads, kv_heads)
    out = cast(Tensor, kernel(query, key, value, rows, causal=True))
    return out.reshape([q.shape[0], -1])


def start_rows(lengths: tuple[int, ...]) -> np.ndarray:
    """For every key the first query row, counted downwards, that must not see it: the end of its document.

    int32 `[1, 1, tokens, 1]`, as FlashMask takes it together with causal attention.
    """
    ends = np.repeat(np.cumsum(lengths), lengths)
    return ends.astype(np.int32).reshape(1, 1, -1, 1)


def _heads(
    shape: list[int], q: Tensor, k: Tensor, v: Tensor, heads: int, kv_heads: int
) -> tuple[Tensor, ...]:
    counts = heads, kv_heads, kv_heads
    return tuple(x.reshape([*shape, count, -1]) for x, count in zip((q, k, v), counts, strict=True))
