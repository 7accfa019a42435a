"""Keeping NaN and infinity visible.

Paddle's CPU softmax clamps its inputs, so that scores that are NaN come out as probabilities, and a broken
model as one with an ordinary loss. These functions carry the failure around it. GPU kernels carry it
themselves, and nothing is done there.
"""

import paddle
from paddle import Tensor


def mark_failures(out: Tensor, *inputs: Tensor) -> Tensor:
    """`out`, or NaN everywhere when an element of one of the `inputs` is not finite."""
    if not out.place.is_cpu_place():
        return out
    return out + paddle.add_n([_total(tensor) for tensor in inputs]).scale_(0.0).astype(out.dtype)


def _total(x: Tensor) -> Tensor:
    # On CPU a product with ones is several times faster than a sum. The longer side goes first.
    x = x.reshape([-1, x.shape[-1]])
    columns = paddle.matmul(paddle.ones([1, x.shape[0]], x.dtype), x)
    return paddle.matmul(columns, paddle.ones([x.shape[1], 1], x.dtype)).reshape([])
