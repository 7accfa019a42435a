"""Rotary position embedding, half-split form (Su et al., arXiv 2104.09864).

With a head split into halves (a, b) and angles t_i = position * theta^(-2i/d): (a, b) -> (a cos t - b sin t,
b cos t + a sin t). Written as x * cos + (x R) * sin with a constant d x d matrix R, so that no half is ever
sliced out: strided copies are slow on CPU and a small matrix product is not.
"""

from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer


@dataclass(frozen=True)
class RotaryTable:
    """cos and sin of every token, repeated over the heads: float `[tokens, heads * head_dim]`, and the
    rotation R.
    """

    cos: Tensor
    sin: Tensor
    rotation: Tensor


def rotary_tables(
    positions: np.ndarray, head_dim: int, theta: float, heads: tuple[int, ...], dtype: paddle.dtype
) -> tuple[RotaryTable, ...]:
    """One table for each number of heads in `heads`, at the int positions `[tokens]`.

    Angles are computed in float32 as the published models were trained with, not more precisely.
    """
    exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequency = np.float32(1.0) / np.float32(theta) ** exponent
    angle = positions.astype(np.float32)[:, None] * frequency
    angle = np.concatenate([angle, angle], axis=1)
    cos, sin = np.cos(angle), np.sin(angle)
    rotation = paddle.to_tensor(_rotation(head_dim)).astype(dtype)

    def spread(values: np.ndarray, count: int) -> Tensor:
        return paddle.tile(paddle.to_tensor(values), [1, count]).astype(dtype)

    return tuple(RotaryTable(spread(cos, count), spread(sin, count), rotation) for count in heads)


def rotate(x: Tensor, table: RotaryTable) -> Tensor:
    """Rotate every head of `x [tokens, heads * head_dim]` by its token's angles."""
    return _Rotate.apply(x, table.cos, table.sin, table.rotation)


class _Rotate(PyLayer):
    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor, rotation: Tensor) -> Tensor:
        ctx.table = cos, sin, rotation
        turned = paddle.matmul(x.reshape([-1, rotation.shape[0]]), rotation).reshape(x.shape)
        return (x * cos).add_(turned.multiply_(sin))

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        cos, sin, rotation = ctx.table
        turned = paddle.matmul((grad * sin).reshape([-1, rotation.shape[0]]), rotation, transpose_y=True)
        return (grad * cos).add_(turned.reshape(grad.shape))


def _rotation(head_dim: int) -> np.ndarray:
    """The matrix R with (a, b) R = (-b, a)."""
    half = head_dim // 2
    matrix = np.zeros((head_dim, head_dim), np.float32)
    matrix[half + np.arange(half), np.arange(half)] = -1.0
    matrix[np.arange(half), half + np.arange(half)] = 1.0
    return matrix
