"""Rules between the arguments of preference training (tasks dpo and kto)."""

from collections.abc import Iterator
from typing import Any

from trainer.config.fields.preference import AVERAGED, CAN_BE_REFERENCE_FREE
from trainer.config.problems import Problem
from trainer.config.rulebook import problem, warning
from trainer.config.values import show

#: Losses that divide by beta.
DIVIDE_BY_BETA = ("ipo", "sppo_hard", "simpo")

#: Losses in which every log-probability is multiplied by beta.
SCALED_BY_BETA = ("sigmoid", "hinge", "kto_pair", "nca_pair")

#: Options of losses, by the losses they belong to.
OPTIONS_OF_LOSSES = {
    "label_smoothing": ("sigmoid", "simpo"),
    "simpo_gamma": ("simpo",),
    "dpop_lambda": ("dpop",),
}

USUAL_BETA = "Use for example 0.1."


@problem("max_prompt_len", "max_seq_len")
def prompt_fits(config: Any) -> Iterator[Problem]:
    if config.max_prompt_len >= config.max_seq_len:
        yield Problem(
            ("max_prompt_len",),
            f"max_prompt_len {config.max_prompt_len} >= max_seq_len {config.max_seq_len}, expected less",
            "max_seq_len counts prompt and responses together: raise it, or lower max_prompt_len.",
        )


@problem("reference_free", "loss_type")
def a_loss_that_can_do_without_a_reference(config: Any) -> Iterator[Problem]:
    if config.reference_free and config.loss_type not in CAN_BE_REFERENCE_FREE:
        msg = f"true with loss_type {config.loss_type}, expected one of {', '.join(CAN_BE_REFERENCE_FREE)}"
        yield Problem(("reference_free",), msg, "Set it to false, or choose another loss_type.")


@problem("beta", "loss_type")
def a_divisor_is_not_0(config: Any) -> Iterator[Problem]:
    if config.beta == 0 and config.loss_type in DIVIDE_BY_BETA:
        msg = f"got 0, expected more: loss_type {config.loss_type} divides by it"
        yield Problem(("beta",), msg, USUAL_BETA)


@problem("pref_loss_ratio", "sft_loss_ratio", "do_train")
def something_to_learn(config: Any) -> Iterator[Problem]:
    if config.do_train and config.pref_loss_ratio == config.sft_loss_ratio == 0:
        msg = "pref_loss_ratio and sft_loss_ratio are both 0, so there is nothing to learn"
        yield Problem(("pref_loss_ratio",), msg, "Leave pref_loss_ratio out.")


@problem("ref_model_update_steps", "lora", "reference_free")
def an_adapter_does_not_become_the_reference(config: Any) -> Iterator[Problem]:
    if config.ref_model_update_steps > 0 and config.lora and not config.reference_free:
        msg = (
            f"got {config.ref_model_update_steps} with lora, whose reference is the model without its adapter"
        )
        yield Problem(("ref_model_update_steps",), msg, "Leave it out, or set lora to false.")


@problem("ref_model_update_steps", "precompute_ref_log_probs", "reference_free")
def what_is_computed_once_does_not_change(config: Any) -> Iterator[Problem]:
    if config.precompute_ref_log_probs and config.ref_model_update_steps > 0 and not config.reference_free:
        msg = f"true with ref_model_update_steps {config.ref_model_update_steps}, which changes the reference"
        yield Problem(("precompute_ref_log_probs",), msg, "Keep one of them.")


@problem("precompute_ref_log_probs", "lazy")
def what_is_computed_once_is_read_whole(config: Any) -> Iterator[Problem]:
    if config.precompute_ref_log_probs and config.lazy:
        msg = "true with lazy, which reads the data as a stream"
        yield Problem(("precompute_ref_log_probs",), msg, "Set lazy to false.")


@warning("precompute_ref_log_probs", "lora")
def an_adapter_needs_no_second_model(config: Any) -> Iterator[Problem]:
    if config.precompute_ref_log_probs and config.lora:
        msg = "true has no effect with lora, whose reference is the model without its adapter"
        yield Problem(("precompute_ref_log_probs",), msg, "Leave it out.")


@warning("ref_model_update_steps", "reference_free")
def no_reference_to_update(config: Any) -> Iterator[Problem]:
    if config.ref_model_update_steps > 0 and config.reference_free:
        msg = f"{config.ref_model_update_steps} has no effect: the training is reference_free"
        yield Problem(("ref_model_update_steps",), msg, "Leave it out.")


@warning("beta", "loss_type")
def a_pair_loss_that_is_constant(config: Any) -> Iterator[Problem]:
    if config.beta == 0 and config.loss_type in SCALED_BY_BETA:
        msg = f"got 0: loss_type {config.loss_type} is then the same for every model"
        yield Problem(("beta",), msg, USUAL_BETA)


@warning("beta", "desirable_weight")
def a_kto_loss_that_is_constant(config: Any) -> Iterator[Problem]:
    if config.beta == 0:
        yield Problem(("beta",), "got 0: the loss is then the same for every model", USUAL_BETA)


@warning("loss_type", *OPTIONS_OF_LOSSES)
def options_of_another_loss(config: Any) -> Iterator[Problem]:
    fields = type(config).model_fields
    for name, losses in OPTIONS_OF_LOSSES.items():
        value = getattr(config, name)
        if value != fields[name].default and config.loss_type not in losses:
            msg = f"{show(value)} has no effect with loss_type {config.loss_type}"
            yield Problem((name,), msg, f"Leave it out; it belongs to {' and '.join(losses)}.")


@warning("ref_model_update_steps", "metric_for_best_model", "load_best_model_at_end", "reference_free")
def a_measure_against_another_reference(config: Any) -> Iterator[Problem]:
    if config.reference_free or config.ref_model_update_steps <= 0 or not config.metric_for_best_model:
        return
    if not config.metric_for_best_model.removeprefix("eval_").startswith("logps/"):
        msg = f"got {config.metric_for_best_model} with ref_model_update_steps"
        msg += f" {config.ref_model_update_steps}: evaluations before and after an update cannot be compared"
        yield Problem(("metric_for_best_model",), msg, "Use for example logps/chosen.")


@warning("normalize_logps", "loss_type")
def a_mean_needs_no_common_length(config: Any) -> Iterator[Problem]:
    if config.normalize_logps and config.loss_type in AVERAGED:
        msg = f"true has no effect with loss_type {config.loss_type}, which takes means over tokens"
        yield Problem(("normalize_logps",), msg, "Leave it out.")


@warning("desirable_weight", "undesirable_weight")
def kto_weights(config: Any) -> Iterator[Problem]:
    for name in ("desirable_weight", "undesirable_weight"):
        if getattr(config, name) == 0:
            yield Problem(
                (name,), "a weight of 0 leaves these responses out of the loss", "Use for example 1.0."
            )
