"""The factor of an inverse matrix, computed in the memory of the matrix, a block of columns at a time."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import Tensor

from trainer.quantization.formats import row_blocks
from trainer.quantization.pulse import Tick, no_tick

_BLOCK = 128


@paddle.no_grad()
def invert_to_factor(matrix: Tensor, tick: Tick = no_tick) -> bool:
    """Replace a symmetric matrix by U, upper triangular, with U^T U its inverse.

    That is the inverse of V, upper triangular, with V V^T the matrix: its Cholesky factor from the last row
    to the first. So the inverse of the matrix, which has fewer good digits, is never made. Beside the matrix
    some columns of it are in memory.

    Args:
        matrix: float64 `[size, size]`; has another content in any case.
        tick: called for each block of columns.

    Returns:
        Whether the matrix is positive definite as far as float64 can tell.
    """
    largest = float(paddle.diagonal(matrix).max())
    if not _factor(matrix, tick):
        return False
    negligible = matrix.shape[0] * np.finfo(np.float64).eps * largest
    # Comparisons with NaN are false.
    if not float((paddle.diagonal(matrix) ** 2).min()) > negligible:
        return False
    _invert(matrix, tick)
    return True


def _factor(matrix: Tensor, tick: Tick) -> bool:
    """Replace the matrix by V; False where a block has no factor."""
    size = matrix.shape[0]
    for start in reversed(range(0, size, _BLOCK)):
        stop = min(start + _BLOCK, size)
        if stop < size:
            right = matrix[start:stop, stop:]
            for first, end in row_blocks(stop):
                tick()
                products = paddle.matmul(matrix[first:end, stop:], right, transpose_y=True)
                matrix[first:end, start:stop] = matrix[first:end, start:stop] - products
            matrix[stop:, start:stop] = 0.0
        corner = _upper_factor(matrix[start:stop, start:stop])
        if corner is None:
            return False
        if start > 0:
            above = matrix[:start, start:stop].t().contiguous()
            matrix[:start, start:stop] = paddle.linalg.triangular_solve(corner, above).t()
        matrix[start:stop, start:stop] = corner
    return True


def _upper_factor(block: Tensor) -> Tensor | None:
    """V of a small matrix."""
    try:
        lower = paddle.linalg.cholesky(paddle.flip(block, [0, 1]))
    except (OSError, RuntimeError, ValueError):  # whichever Paddle's kernels raise
        return None
    return paddle.flip(lower, [0, 1])


def _invert(factor: Tensor, tick: Tick) -> None:
    """Replace an upper triangular matrix by its inverse."""
    size = factor.shape[0]
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        corner = factor[start:stop, start:stop]
        inverse = paddle.linalg.triangular_solve(corner, paddle.eye(stop - start, dtype="float64"))
        if start > 0:
            above = paddle.matmul(factor[:start, start:stop], inverse)
            for first, end in row_blocks(start):
                tick()
                done = factor[first:end, first:start]
                factor[first:end, start:stop] = -paddle.matmul(done, above[first:])
        factor[start:stop, start:stop] = inverse
