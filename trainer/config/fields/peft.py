"""Parameter-efficient tuning: LoRA and its relatives, prefix tuning, ReFT."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import Standing, later, no_effect, setting
from trainer.config.values import Flag, PathText, Real, Text, TextList, Whole


def belongs_to(switch: str) -> Standing:
    """An option of a tuning method that is not available, so it changes nothing."""
    return no_effect(f"it belongs to {switch}, which is not available in this version")


QUICK = no_effect("the adapter is added to the output of its layer, which is exact with dropout too")


class LoraFields(FieldGroup):
    """LoRA adapters, in every training task."""

    lora: Flag = setting(False, "Train LoRA adapters, not the whole model.")
    lora_path: PathText | None = setting(
        None, "Start from this saved adapter; its rank, alpha and targets are taken over."
    )
    lora_rank: Whole = setting(8, "Rank of the adapters.", ge=1)
    rslora: Flag = setting(False, "Scale by alpha / sqrt(rank), not alpha / rank.")
    lora_plus_scale: Real = setting(1.0, "LoRA+: learning-rate factor of the B matrices.", gt=0)
    use_quick_lora: Flag = setting(False, "Fused forward of adapters.", QUICK)
    lora_alpha: Whole = setting(-1, "LoRA alpha; -1: twice the rank, or 4 with rslora.", ge=-1)
    rslora_plus: Flag = setting(False, "Short for rslora true, lora_plus_scale 4, lora_alpha 4.")
    lora_dropout: Real = setting(
        0.0,
        "Share of an adapter's inputs that is dropped in training. An argument of this service.",
        ge=0,
        lt=1,
    )
    target_modules: TextList | None = setting(
        None,
        "Linear layers that get an adapter, by name or end of path; unset: all of the decoder layers. An"
        " argument of this service.",
    )


class PreferenceLoraFields(FieldGroup):
    """LoRA options whose defaults differ in the preference tasks."""

    use_quick_lora: Flag = setting(True, "Fused forward of adapters.", QUICK)


class AdapterFields(FieldGroup):
    """Tuning methods of finetune and quantize besides plain LoRA."""

    pissa: Flag = setting(
        False,
        "Start adapters from the principal singular vectors.",
        later("PiSSA; its adapter belongs to a changed base model, which other tools do not have"),
    )
    lora_use_mixer: Flag = setting(
        False, "Mix the adapter's inner dimensions.", later("mixing inside LoRA; other tools cannot read it")
    )
    use_mora: Flag = setting(False, "Square high-rank adapters (MoRA).", later("MoRA adapters"))
    vera: Flag = setting(False, "VeRA adapters.", later("VeRA adapters"))
    vera_rank: Whole = setting(8, "Rank of VeRA adapters.", belongs_to("vera"), ge=1)
    lokr: Flag = setting(False, "LoKr adapters.", later("LoKr adapters"))
    lokr_path: Text | None = setting(None, "Start from this saved LoKr adapter.", belongs_to("lokr"))
    lokr_dim: Whole = setting(8, "Rank of LoKr adapters.", belongs_to("lokr"), ge=1)
    prefix_tuning: Flag = setting(False, "Train keys and values in front of every text, not the model.")
    prefix_path: PathText | None = setting(None, "Start from this saved prefix; its sizes are taken over.")
    num_prefix_tokens: Whole = setting(128, "Length of the prefix.", ge=1)
    prefix_projection: Flag = setting(
        False, "Compute the prefix by a small network in training. An argument of this service."
    )
    prefix_projection_hidden_size: Whole | None = setting(
        None,
        "Width inside that network; unset: that of a token's keys. An argument of this service.",
        ge=1,
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
