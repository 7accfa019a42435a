"""AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101)."""

from __future__ import annotations

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
