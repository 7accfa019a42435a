"""Adding a bias to every row, with a backward pass that does not sum rows.

Paddle's CPU kernels multiply matrices fast and reduce slowly: the gradient of a bias is a product with ones.
"""

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """`x [tokens, width]` plus `bias [width]`, in the dtype of `x`."""
    return _AddBias.apply(x, bias)


class _AddBias(PyLayer):
    @staticmethod
    def forward(ctx, x: Tensor, bias: Tensor) -> Tensor:
        ctx.wanted = not x.stop_gradient, not bias.stop_gradient
        ctx.dtype = bias.dtype
        return x + bias.astype(x.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x_wanted, bias_wanted = ctx.wanted
        grad_bias = None
        if bias_wanted:
            ones = paddle.ones([1, grad.shape[0]], grad.dtype)
            grad_bias = paddle.matmul(ones, grad).reshape([-1]).astype(ctx.dtype)
        return (grad if x_wanted else None), grad_bias
