"""Losses of preference training."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import setting
from trainer.config.values import Flag, PositiveOrUnset, Real

#: Losses of log-probabilities per token, not of sums.
AVERAGED = frozenset({"ipo", "simpo", "or", "orpo"})

#: Losses whose formula has no reference.
WITHOUT_REFERENCE = ("or", "orpo", "simpo")

#: Losses that reference_free may be set for.
CAN_BE_REFERENCE_FREE = ("sigmoid", "hinge", "ipo", *WITHOUT_REFERENCE)


class ReferenceFields(FieldGroup):
    """The reference policy of both tasks."""

    precompute_ref_log_probs: Flag = setting(
        False,
        "In full training, compute the reference's log-probabilities once and keep them in output_dir, so"
        " that no second model is held in memory. An argument of this service.",
    )


class DpoFields(FieldGroup):
    """Direct preference optimization and its relatives."""

    beta: Real = setting(0.1, "How strongly the policy is held to the reference.", ge=0)
    loss_type: Literal[
        "sigmoid",
        "hinge",
        "ipo",
        "kto_pair",
        "sppo_hard",
        "nca_pair",
        "dpop",
        "orpo",
        "simpo",
        "or",
    ] = setting("sigmoid", "Preference loss.")
    label_smoothing: Real = setting(0.0, "Share of pairs taken to be judged wrongly.", ge=0, lt=0.5)
    simpo_gamma: Real = setting(0.5, "Margin of SimPO.", ge=0)
    dpop_lambda: Real = setting(50.0, "Weight of the DPOP penalty.", ge=0)
    pref_loss_ratio: Real = setting(1.0, "Weight of the preference loss.", ge=0)
    sft_loss_ratio: Real = setting(0.0, "Weight of the SFT loss of the chosen response.", ge=0)
    normalize_logps: Flag = setting(
        False,
        "Scale both log-probabilities of a pair to the mean length of its responses, so that length alone"
        " decides nothing. An argument of later PaddleNLP.",
    )
    reference_free: Flag = setting(False, "Train without a reference model.")
    ref_model_update_steps: PositiveOrUnset = setting(
        -1, "Copy the policy to the reference every so many steps."
    )


class KtoFields(FieldGroup):
    """Kahneman-Tversky optimization."""

    beta: Real = setting(0.1, "How strongly the policy is held to the reference.", ge=0)
    desirable_weight: Real = setting(1.0, "Weight of desirable responses.", ge=0)
    undesirable_weight: Real = setting(1.0, "Weight of undesirable responses.", ge=0)
