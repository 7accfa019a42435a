"""Kernels of tensor parallelism that exist for GPUs only.

They replace functions of `paddle._C_ops` for tensors on the CPU, so `mp_ops`, `ColumnParallelLinear`,
`ParallelCrossEntropy` and the others stay as they are.
"""

from collections.abc import Callable
from typing import Any

import paddle
import paddle.distributed as distributed
from paddle import Tensor
from paddle.autograd import PyLayer
from paddle.distributed.communication import group as paddle_groups


def add_kernels() -> None:
    """Replace the four functions."""
    # Identity and split are called inside PyLayers, whose backward is Paddle's.
    _on_cpu("c_identity", lambda x, *_: x.clone())
    _on_cpu("c_split", lambda x, rank, ranks, *_: _part(x, rank, ranks))
    _on_cpu("c_concat", lambda x, rank, ranks, ring, *_: _Concat.apply(x, rank, ranks, ring))
    _on_cpu("c_softmax_with_cross_entropy", _SoftmaxCrossEntropy.apply)


def _on_cpu(name: str, replacement: Callable[..., Any]) -> None:
    operations: Any = vars(paddle)["_C_ops"]
    original = getattr(operations, name)

    def operation(x: Any, *args: Any) -> Any:
        return replacement(x, *args) if x.place.is_cpu_place() else original(x, *args)

    setattr(operations, name, operation)


def _part(x: Tensor, rank: int, ranks: int) -> Tensor:
    return paddle.split(x, ranks, axis=-1)[rank].contiguous()


def _group(ring: int) -> Any:
    return paddle_groups._GroupManager.group_map_by_id[ring]


class _Concat(PyLayer):
    """The parts of all ranks along the last axis; backward passes on this rank's part of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rank: int, ranks: int, ring: int) -> Tensor:
        ctx.rank, ctx.ranks = rank, ranks
        parts: list[Tensor] = []
        distributed.all_gather(parts, x.detach().contiguous(), group=_group(ring))
        return paddle.concat(parts, axis=-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _part(gradient, ctx.rank, ctx.ranks)


class _SoftmaxCrossEntropy(PyLayer):
    """Softmax and cross entropy of logits that are split along the vocabulary, their last axis.

    Computed in float32, or in float64 when the logits are.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, label: Tensor, ignore_index: int, ring: int, rank: int, ranks: int
    ) -> tuple[Tensor, Tensor]:
        """Returns this rank's softmax, as the logits, and the loss `[..., 1]`, zero where it is ignored.

        Args:
            label: int `[..., 1]`, numbers in the whole vocabulary.
        """
        group = _group(ring)
        x = logits.detach()
        if x.dtype != paddle.float64:
            x = x.astype("float32")
        width = x.shape[-1]
        peak = x.max(-1, keepdim=True)
        distributed.all_reduce(peak, op=distributed.ReduceOp.MAX, group=group)
        x = x - peak
        exponential = paddle.exp(x)
        total = exponential.sum(-1, keepdim=True)
        distributed.all_reduce(total, group=group)
        index = label - rank * width
        here = paddle.logical_and(index >= 0, index < width)
        index = paddle.where(here, index, paddle.zeros_like(index))
        here = here.astype(x.dtype)
        picked = paddle.take_along_axis(x, index, -1) * here
        distributed.all_reduce(picked, group=group)
        counted = (label != ignore_index).astype(x.dtype)
        softmax = exponential / total
        ctx.save_for_backward(softmax, index, here, counted)
        ctx.dtype = logits.dtype
        loss = (paddle.log(total) - picked) * counted
        return softmax.astype(logits.dtype), loss.astype(logits.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Of the loss only; there is one entry for each tensor of `forward`, logits and label."""
        softmax, index, here, counted = ctx.saved_tensor()
        target = paddle.nn.functional.one_hot(index.squeeze(-1), softmax.shape[-1]).astype(softmax.dtype)
        gradient = (softmax - target * here) * counted * gradients[1].astype(softmax.dtype)
        return gradient.astype(ctx.dtype), None
