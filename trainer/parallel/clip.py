"""Clipping by the norm of all gradients, wherever they are.

Every process sums the squares of the gradients it has, each divided by the number of processes that have the
same one; one sum over all processes then gives the norm. It is exact under every layout. Fleet has clips of
its own, but replaces only `paddle.nn.ClipGradByGlobalNorm` by them: one for each kind of layout, one of which
is wrong (stage 3 with tensor parallelism), all of which add 1e-6 to the norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import paddle
from paddle import Tensor
from paddle.nn.clip import ClipGradBase

#: What Fleet puts in front of the name of a parameter for the part of it that a process keeps in stage 3.
SLICE_PREFIX = "slice@"

_OPERATORS: Any = cast(Any, paddle)._C_ops

#: Parts of a gradient whose squares are summed beside one another.
_PIECES = 64

Gradients = Sequence[tuple[Tensor, Tensor | None]]


class GradientsNotFinite(ArithmeticError):  # noqa: N818  (it says what was found; a step may just be skipped)
    """The norm of the gradients is infinite or NaN; no weight was changed.

    Attributes:
        norm: which of the two.
    """

    def __init__(self, norm: float) -> None:
        super().__init__(f"the gradient norm is {norm}")
        self.norm = norm


class GlobalNormClip(ClipGradBase):
    """Brings the gradients back from the loss scale and, all together, down to a largest norm.

    An optimizer calls it with its parameters and gradients before it changes a weight. Gradients are scaled
    in place, except float16 ones, which could underflow: they become float32.

    Args:
        max_norm: 0 or less: no clipping.
        copies: for a parameter, or the part of one that is kept here, the number of processes that have the
            same gradient.
        add_up: sums a float64 tensor over all processes, in place.

    Attributes:
        loss_scale: factor that the loss had, and so the gradients have.
        norm: the norm at the last call, without loss scale and before clipping.
    """

    def __init__(
        self,
        max_norm: float,
        copies: Callable[[Tensor], int] = lambda parameter: 1,
        add_up: Callable[[Tensor], None] = lambda total: None,
    ) -> None:
        super().__init__()
        self.loss_scale = 1.0
        self.norm = 0.0
        self._max_norm = max_norm
        self._copies = copies
        self._add_up = add_up

    @paddle.no_grad()
    def __call__(self, params_grads: Gradients) -> list[tuple[Tensor, Tensor]]:  # type: ignore[override]
        """The gradients to go on with.

        Raises:
            GradientsNotFinite: in all processes alike; the gradients are left as they are.
        """
        found = [(parameter, gradient) for parameter, gradient in params_grads if gradient is not None]
        total = self._square_sum(found)
        self._add_up(total)
        self.norm = math.sqrt(float(total))
        if not math.isfinite(self.norm):
            raise GradientsNotFinite(self.norm)
        factor = 1.0 / self.loss_scale
        if 0 < self._max_norm < self.norm:
            factor *= self._max_norm / self.norm
        if factor == 1.0:
            return found
        return [(parameter, _scaled(gradient, factor)) for parameter, gradient in found]

    def _square_sum(self, found: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        if not found:
            return paddle.zeros([], "float64")
        squares = paddle.stack([square_sum(gradient, self.loss_scale) for _, gradient in found])
        squares = squares.astype("float64")
        shares = [1.0 / self._copies(parameter) for parameter, _ in found]
        return (squares * paddle.to_tensor(shares, dtype="float64")).sum()

    def __str__(self) -> str:
        return f"GlobalNormClip({self._max_norm})"


def square_sum(gradient: Tensor, scale: float = 1.0) -> Tensor:
    """The sum of the squares of a tensor divided by `scale`, a float32 scalar."""
    flat = gradient.astype("float32").reshape([1, -1])
    if scale != 1.0:
        flat = flat * (1.0 / scale)
    if flat.place.is_gpu_place():
        return _OPERATORS.squared_l2_norm(flat).reshape([])
    # Paddle's CPU matmul is several times faster here than its sum, dot or norm; a batch runs in threads.
    pieces = _PIECES if flat.size % _PIECES == 0 else 1
    flat = flat.reshape([pieces, 1, -1])
    return paddle.matmul(flat, flat, transpose_y=True).sum()


def _scaled(gradient: Tensor, factor: float) -> Tensor:
    if gradient.dtype == paddle.float16:
        return gradient.astype("float32").scale_(factor)
    return gradient.scale_(factor)
