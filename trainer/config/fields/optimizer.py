"""The optimizer and the learning-rate schedule."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import later, no_effect, setting
from trainer.config.values import Flag, Real, Whole


class OptimizerFields(FieldGroup):
    """Optimizer and schedule, in every training task."""

    learning_rate: Real = setting(5e-5, "Peak learning rate.", ge=0)
    lr_scheduler_type: Literal["linear", "cosine", "constant", "constant_with_warmup", "polynomial"] = (
        setting("linear", "Course of the learning rate after warmup.")
    )
    warmup_steps: Whole = setting(0, "Optimizer steps of linear warmup; wins over warmup_ratio.", ge=0)
    warmup_ratio: Real = setting(0.0, "Warmup as a share of all optimizer steps.", ge=0, le=1)
    num_cycles: Real = setting(0.5, "Waves of the cosine schedule.", gt=0)
    lr_end: Real = setting(1e-7, "Last rate of the polynomial schedule.", ge=0)
    power: Real = setting(1.0, "Power of the polynomial schedule.", gt=0)
    optim: Literal["adamw", "adafactor", "adamw_mini", "adamw_custom", "adamw_16bit_moment"] = setting(
        "adamw", "Optimizer.", later("optimizers other than adamw")
    )
    weight_decay: Real = setting(0.0, "Decoupled weight decay of AdamW; norms and biases are exempt.", ge=0)
    adam_beta1: Real = setting(0.9, "Decay rate of AdamW's first moment.", ge=0, lt=1)
    adam_beta2: Real = setting(0.999, "Decay rate of AdamW's second moment.", ge=0, lt=1)
    adam_epsilon: Real = setting(1e-8, "Term that keeps AdamW's division finite.", gt=0)
    max_grad_norm: Real = setting(1.0, "Clip gradients to this global norm; 0 or less: do not clip.")
    offload_optim: Flag | None = setting(
        False,
        "Keep optimizer state in host memory.",
        no_effect("optimizer state stays on the device; the result is the same"),
    )
    release_grads: Flag | None = setting(
        False,
        "Free gradients between steps.",
        no_effect("gradients are always freed after a step", (True,)),
    )
    flatten_param_grads: Flag | None = setting(
        False, "Keep gradients in one buffer.", no_effect("it is a speed switch of NPU devices")
    )


class DecayFields(FieldGroup):
    """Schedule option of finetune and quantize."""

    decay_steps: Whole = setting(0, "Length of the schedule in optimizer steps; 0: the whole training.", ge=0)
