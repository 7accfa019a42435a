"""Kernels and activation recompute: speed and memory, never the result."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import no_effect, setting
from trainer.config.values import Flag, Text, Whole, WholeList

KERNEL = no_effect("kernels are chosen for the device; the result is the same")
RECOMPUTE = no_effect("every layer is computed again in one way; the result is the same")


class KernelFields(FieldGroup):
    """Fused kernels and recompute."""

    use_flash_attention: Flag = setting(False, "Use the fused attention kernel.", KERNEL)
    use_fused_rms_norm: Flag = setting(False, "Use the fused norm kernel.", KERNEL)
    use_fused_rope: Flag = setting(False, "Use the fused rotary embedding kernel.", KERNEL)
    use_fused_linear: Flag = setting(False, "Use the fused linear kernel.", KERNEL)
    use_fused_dropout_add: Flag = setting(False, "Use the fused dropout and add kernel.", KERNEL)
    use_fused_linear_cross_entropy: Flag = setting(False, "Compute the loss in chunks.", KERNEL)
    recompute: Flag = setting(False, "Compute activations again in the backward pass, which saves memory.")
    recompute_granularity: Literal["full", "full_attn", "core_attn"] = setting(
        "full",
        "What is computed again. full: whole layers; full_attn: attention with its projections; core_attn:"
        " attention without them.",
    )
    recompute_use_reentrant: Flag = setting(False, "Re-entrant form of recompute.", RECOMPUTE)
    refined_recompute: Text = setting("", "Operators left out of recompute.", RECOMPUTE)
    no_recompute_layers: WholeList | None = setting(None, "Layers left out of recompute.", RECOMPUTE)
    pp_recompute_interval: Whole = setting(1, "Recompute every so many layers.", RECOMPUTE, ge=0)
    offload_recompute_inputs: Flag = setting(False, "Keep recompute inputs in host memory.", RECOMPUTE)
