"""Gated linear unit with the tanh form of GELU (Shazeer, arXiv 2002.05202)."""

import paddle.nn.functional as functional
from paddle import Tensor


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate) * up, where gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    return functional.gelu(gate, approximate=True) * up
