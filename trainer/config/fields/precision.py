"""Number formats and the device."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import later, refused, setting
from trainer.config.values import Flag, Real, Text, TextList


class PrecisionFields(FieldGroup):
    """Mixed precision; on a CPU everything is computed in float32, with a warning."""

    fp16: Flag = setting(False, "Compute in float16 with loss scaling.")
    bf16: Flag = setting(False, "Compute in bfloat16.")
    fp16_opt_level: Literal["O0", "O1", "O2"] = setting(
        "O1", "O1: float32 weights; O2: 16-bit weights and float32 master weights; for bf16 too."
    )
    amp_master_grad: Flag = setting(False, "Keep gradients in float32 (O2).")
    scale_loss: Real = setting(32768.0, "First loss scale of fp16.", gt=0)
    fp16_full_eval: Flag = setting(False, "Evaluate in float16.", later("another precision in evaluation"))
    bf16_full_eval: Flag = setting(False, "Evaluate in bfloat16.", later("another precision in evaluation"))
    amp_custom_black_list: TextList | None = setting(
        None, "Operators kept in float32.", later("custom operator lists")
    )
    amp_custom_white_list: TextList | None = setting(
        None, "Operators computed in 16 bits.", later("custom operator lists")
    )
    device: Text | None = setting(
        "gpu",
        "Device to train on. A job that names one waits for a host with it; else cpu where there is no gpu.",
        refused("this version trains on gpu and cpu", ("cpu",)),
    )
    no_cuda: Flag = setting(False, "Train on the CPU; the same as device cpu.")
