"""Root-mean-square normalisation with a scale stored around zero.

y = x / sqrt(mean(x^2) + eps) * (1 + w), per token, computed in float32 and cast back (Zhang & Sennrich, arXiv
1910.07467; the `1 + w` is Gemma's).

Paddle's CPU kernels broadcast and reduce slowly and multiply matrices fast, so sums over a row are products
with a column of ones, and factors that differ by row and column are outer products.
"""

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Normalise each row of `x [tokens, width]`, scale by `1 + weight [width]`, keep the dtype of `x`."""
    return _RMSNorm.apply(x, weight, epsilon)


class _RMSNorm(PyLayer):
    """Saves its inputs and one number a row."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        wide = x.astype("float32")
        inverse = _inverse_rms(wide, epsilon)
        ctx.save_for_backward(x, weight, inverse)
        return _factors(inverse, weight).multiply_(wide).astype(x.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight, inverse = ctx.saved_tensor()
        wide, wide_grad = x.astype("float32"), grad.astype("float32")
        product = wide_grad * wide
        grad_x = grad_weight = None
        if not weight.stop_gradient:
            grad_weight = paddle.matmul(inverse, product, transpose_x=True).reshape(weight.shape)
            grad_weight = grad_weight.astype(weight.dtype)
        if not x.stop_gradient:
            projection = paddle.matmul(product, (weight.astype("float32") + 1.0).reshape([-1, 1]))
            along = projection * inverse * inverse * inverse / x.shape[1]
            of_rows = paddle.matmul(along, paddle.ones([1, x.shape[1]], "float32")).multiply_(wide)
            grad_x = _factors(inverse, weight).multiply_(wide_grad).subtract_(of_rows).astype(x.dtype)
        return grad_x, grad_weight


def _inverse_rms(x: Tensor, epsilon: float) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) of each row, `[tokens, 1]`."""
    width = x.shape[1]
    mean_square = paddle.matmul(x * x, paddle.ones([width, 1], "float32")) / width
    return paddle.rsqrt(mean_square + epsilon)


def _factors(inverse: Tensor, weight: Tensor) -> Tensor:
    """What each element of x is multiplied by: the outer product of `[tokens, 1]` and `1 + weight`."""
    return paddle.matmul(inverse, (weight.astype("float32") + 1.0).reshape([1, -1]))
