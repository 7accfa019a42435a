"""Gated linear unit with the tanh form of GELU (Shazeer, arXiv 2002.05202).

Paddle's functions for the two passes, put together by hand: one array less is made and read in each.
"""

from typing import Any, cast

import paddle
import paddle.nn.functional as functional
from paddle import Tensor
from paddle.autograd import PyLayer

_OPERATORS: Any = cast(Any, paddle)._C_ops


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate) * up, where gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    return _Geglu.apply(gate, up)


class _Geglu(PyLayer):
    @staticmethod
    def forward(ctx, gate: Tensor, up: Tensor) -> Tensor:
        active = functional.gelu(gate, approximate=True)
        ctx.wanted = not gate.stop_gradient, not up.stop_gradient
        ctx.save_for_backward(gate, up, active)
        return active * up

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        gate, up, active = ctx.saved_tensor()
        gate_wanted, up_wanted = ctx.wanted
        grad_gate = _OPERATORS.gelu_grad(gate, grad * up, True) if gate_wanted else None
        return grad_gate, (grad * active if up_wanted else None)
