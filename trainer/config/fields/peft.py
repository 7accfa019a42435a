"""Parameter-efficient tuning: LoRA and its relatives, prefix tuning, ReFT."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import Standing, later, no_effect, setting
from trainer.config.values import Flag, Real, Text, Whole


def belongs_to(switch: str) -> Standing:
    """An option of a tuning method that is not available, so it changes nothing."""
    return no_effect(f"it belongs to {switch}, which is not available in this version")


class LoraFields(FieldGroup):
    """LoRA adapters, in every training task."""

    lora: Flag = setting(False, "Train LoRA adapters, not the whole model.", later("LoRA adapters"))
    lora_path: Text | None = setting(None, "Start from this saved adapter.", belongs_to("lora"))
    lora_rank: Whole = setting(8, "Rank of the adapters.", belongs_to("lora"), ge=1)
    rslora: Flag = setting(False, "Scale by alpha / sqrt(rank), not alpha / rank.", belongs_to("lora"))
    lora_plus_scale: Real = setting(
        1.0, "LoRA+: learning-rate factor of the B matrices.", belongs_to("lora"), gt=0
    )
    use_quick_lora: Flag = setting(False, "Fused forward of adapters.", belongs_to("lora"))


class PreferenceLoraFields(FieldGroup):
    """LoRA options of the preference tasks."""

    use_quick_lora: Flag = setting(True, "Fused forward of adapters.", belongs_to("lora"))
    lora_alpha: Whole = setting(-1, "LoRA alpha; -1: twice the rank.", belongs_to("lora"), ge=-1)
    rslora_plus: Flag = setting(
        False, "Short for rslora true, lora_plus_scale 4, lora_alpha 4.", belongs_to("lora")
    )


class AdapterFields(FieldGroup):
    """Tuning methods of finetune and quantize besides plain LoRA."""

    pissa: Flag = setting(False, "Start adapters from the principal singular vectors.", belongs_to("lora"))
    lora_use_mixer: Flag = setting(False, "Mix the adapter's inner dimensions.", belongs_to("lora"))
    use_mora: Flag = setting(False, "Square high-rank adapters (MoRA).", belongs_to("lora"))
    vera: Flag = setting(False, "VeRA adapters.", later("VeRA adapters"))
    vera_rank: Whole = setting(8, "Rank of VeRA adapters.", belongs_to("vera"), ge=1)
    lokr: Flag = setting(False, "LoKr adapters.", later("LoKr adapters"))
    lokr_path: Text | None = setting(None, "Start from this saved LoKr adapter.", belongs_to("lokr"))
    lokr_dim: Whole = setting(8, "Rank of LoKr adapters.", belongs_to("lokr"), ge=1)
    prefix_tuning: Flag = setting(False, "Train a prefix of virtual tokens.", later("prefix tuning"))
    prefix_path: Text | None = setting(None, "Start from this saved prefix.", belongs_to("prefix_tuning"))
    num_prefix_tokens: Whole = setting(
        128, "Virtual tokens of the prefix.", belongs_to("prefix_tuning"), ge=1
    )
    reft: Flag = setting(False, "Representation fine-tuning (ReFT).", later("ReFT"))


class ReftFields(FieldGroup):
    """ReFT options."""

    layers: Text = setting("all", "Layers that ReFT changes.", belongs_to("reft"))
    position: Text = setting("f7+l7", "Token positions that ReFT changes.", belongs_to("reft"))
    intervention_type: Literal["LoreftIntervention", "TinyIntervention"] = setting(
        "LoreftIntervention", "Kind of ReFT intervention.", belongs_to("reft")
    )
    rank: Whole = setting(8, "Rank of ReFT interventions.", belongs_to("reft"), ge=1)
    act_fn: Text = setting("linear", "Activation of ReFT interventions.", belongs_to("reft"))
    add_bias: Flag = setting(False, "Give ReFT interventions a bias.", belongs_to("reft"))
    dropout: Real = setting(0.0, "Dropout of ReFT interventions.", belongs_to("reft"), ge=0, lt=1)
