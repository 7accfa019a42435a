"""AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101); clipping by global norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import paddle

from trainer.parallel.clip import SLICE_PREFIX

if TYPE_CHECKING:
    from trainer.config.schema import RunConfig
    from trainer.parallel.clip import GlobalNormClip


def build_optimizer(
    parameters: Sequence[paddle.Tensor],
    config: RunConfig,
    *,
    master_weights: bool = False,
    clip: GlobalNormClip | None = None,
) -> paddle.optimizer.AdamW:
    """AdamW over the trainable ones of `parameters`.

    Norm weights and biases, which are the parameters with one dimension, do not decay; a part of a parameter
    decays as the whole one does. The learning rate starts at 0: it is set before every step. With
    `master_weights` an fp32 copy of every low-precision weight is kept.
    """
    trainable = [parameter for parameter in parameters if not parameter.stop_gradient]
    decaying = {parameter.name for parameter in trainable if parameter.ndim > 1}
    return paddle.optimizer.AdamW(
        learning_rate=0.0,
        beta1=config.adam_beta1,
        beta2=config.adam_beta2,
        epsilon=config.adam_epsilon,
        parameters=trainable,
        weight_decay=config.weight_decay,
        apply_decay_param_fun=lambda name: name.removeprefix(SLICE_PREFIX) in decaying,
        multi_precision=master_weights,
        grad_clip=clip,
    )


@paddle.no_grad()
def clip_gradients(parameters: Sequence[paddle.Tensor], max_norm: float) -> float:
    """Scale all gradients so that their global norm is at most `max_norm`; 0 or less: no clipping.

    Returns the norm before clipping. It may be infinite or NaN; then the gradients are left as they are.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    squares = [_square_sum(gradient) for gradient in gradients]
    norm = math.sqrt(float(paddle.add_n(squares))) if squares else 0.0
    if max_norm > 0 and math.isfinite(norm) and norm > max_norm:
        for gradient in gradients:
            gradient.scale_(max_norm / norm)
    return norm


def _square_sum(gradient: paddle.Tensor) -> paddle.Tensor:
    # Paddle's CPU matmul is several times faster here than its sum, dot or norm.
    flat = gradient.astype("float32").reshape([1, -1])
    return paddle.matmul(flat, flat, transpose_y=True).reshape([])
