"""Rules between arguments. Each is a small function that yields what it finds; adding it to a list is all.

A rule runs for every config that has the arguments it names, when each of them could be read by itself.
"""

from collections.abc import Iterator
from typing import Any

from trainer.config import parallel_rules, preference_rules, quantization_rules  # noqa: F401  (add their rules)
from trainer.config.derive import LOWER_IS_BETTER
from trainer.config.problems import Problem
from trainer.config.rulebook import PROBLEMS, WARNINGS, findings, problem, warning
from trainer.config.values import show

__all__ = ["GENERATION_METRICS", "METRICS", "PROBLEMS", "WARNINGS", "findings"]

REWARDS = ("rewards/chosen", "rewards/rejected", "rewards/margins")
LOG_PROBABILITIES = ("logps/chosen", "logps/rejected")

#: What evaluation measures, by task; each name also with `eval_` in front.
METRICS = {
    "finetune": ("loss", "accuracy", "ppl"),
    "dpo": ("loss", *REWARDS, "rewards/accuracies", *LOG_PROBABILITIES),
    "kto": ("loss", *REWARDS, *LOG_PROBABILITIES, "kl"),
}

#: What evaluation measures besides with eval_with_do_generation.
GENERATION_METRICS = ("rouge1", "rouge2", "rougel", "bleu4")

#: Options that do something only together with another argument.
NEEDS = {
    "greedy_zero_padding": "zero_padding",
    "save_generation_output": "eval_with_do_generation",
    "top_k": "eval_with_do_generation",
    "top_p": "eval_with_do_generation",
    "neftune_noise_alpha": "neftune",
    "recompute_granularity": "recompute",
}

HIGH_LEARNING_RATE = 0.1


@problem("fp16", "bf16")
def one_half_precision(config: Any) -> Iterator[Problem]:
    if config.fp16 and config.bf16:
        yield Problem(
            ("fp16",),
            "fp16 and bf16 are both true, expected at most one",
            "Keep bf16; it needs no loss scaling.",
        )


@problem("fp16_opt_level", "fp16", "bf16")
def o2_needs_half_precision(config: Any) -> Iterator[Problem]:
    if config.fp16_opt_level == "O2" and not (config.fp16 or config.bf16):
        yield Problem(
            ("fp16_opt_level",), "got O2, expected fp16 or bf16 to be true with it", "Set bf16 to true."
        )


@problem("fp16_full_eval", "bf16_full_eval")
def one_precision_of_evaluation(config: Any) -> Iterator[Problem]:
    if config.fp16_full_eval and config.bf16_full_eval:
        msg = "fp16_full_eval and bf16_full_eval are both true, expected at most one"
        yield Problem(("fp16_full_eval",), msg, "Keep one of them.")


@problem("src_length", "max_length")
def source_fits(config: Any) -> Iterator[Problem]:
    if config.src_length > config.max_length:
        yield Problem(
            ("src_length",),
            f"src_length {config.src_length} > max_length {config.max_length}, expected it to be smaller",
            "max_length counts source and target together: raise it, or lower src_length.",
        )


@problem("do_train", "do_eval", "do_predict", "do_export")
def something_to_do(config: Any) -> Iterator[Problem]:
    flags = ("do_train", "do_eval", "do_predict", "do_export")
    if config.task != "quantize" and not any(getattr(config, flag) for flag in flags):
        yield Problem(
            ("do_train",), "no do_* flag is true, so there is nothing to do", "Set do_train to true."
        )


@problem("load_best_model_at_end", "evaluation_strategy", "save_strategy")
def best_model_needs_equal_strategies(config: Any) -> Iterator[Problem]:
    if not (config.load_best_model_at_end and config.do_train):
        return
    if config.evaluation_strategy == "no":
        remedy = "epoch" if config.save_strategy == "no" else config.save_strategy
        yield Problem(
            ("load_best_model_at_end",),
            "load_best_model_at_end is true and evaluation_strategy is no, so no model is the best",
            f"Set evaluation_strategy to {remedy}.",
        )
    elif config.evaluation_strategy != config.save_strategy:
        yield Problem(
            ("load_best_model_at_end",),
            f"evaluation_strategy {config.evaluation_strategy} and save_strategy {config.save_strategy} "
            "differ, expected them to be equal when load_best_model_at_end is true",
            _equal_strategies(config.evaluation_strategy, config.save_strategy),
        )


def _equal_strategies(evaluation: str, save: str) -> str:
    remedy = f"Set save_strategy to {evaluation}"
    return f"{remedy}." if save == "no" else f"{remedy}, or evaluation_strategy to {save}."


@problem("load_best_model_at_end", "evaluation_strategy", "save_strategy", "save_steps", "eval_steps")
def best_model_is_evaluated_when_saved(config: Any) -> Iterator[Problem]:
    by_steps = config.evaluation_strategy == config.save_strategy == "steps"
    if (
        config.load_best_model_at_end
        and config.do_train
        and by_steps
        and config.save_steps % config.eval_steps
    ):
        yield Problem(
            ("save_steps",),
            f"save_steps {config.save_steps} is not a multiple of eval_steps {config.eval_steps}, "
            "expected so when load_best_model_at_end is true",
            f"Set save_steps to {_round_up(config.save_steps, config.eval_steps)}.",
        )


@problem("metric_for_best_model", "prediction_loss_only")
def best_metric_exists(config: Any) -> Iterator[Problem]:
    metric = config.metric_for_best_model
    if metric is None or config.task not in METRICS:
        return
    known = ("loss",) if config.prediction_loss_only else METRICS[config.task]
    if getattr(config, "eval_with_do_generation", False):
        known += GENERATION_METRICS
    if metric.removeprefix("eval_") not in known:
        yield Problem(
            ("metric_for_best_model",),
            f"got {metric[:60]}, expected one of the metrics of this job: {', '.join(known)}",
            f"Use for example {known[min(1, len(known) - 1)]}.",
        )


@problem("lora", "prefix_tuning", "vera", "lokr", "reft")
def one_tuning_method(config: Any) -> Iterator[Problem]:
    methods = [name for name in ("lora", "prefix_tuning", "vera", "lokr", "reft") if getattr(config, name)]
    if len(methods) > 1:
        yield Problem(
            (methods[1],), f"{' and '.join(methods)} are all true, expected at most one", "Keep one of them."
        )


@problem("lora", "lora_alpha")
def an_adapter_has_a_scale(config: Any) -> Iterator[Problem]:
    if config.lora and config.lora_alpha == 0:
        msg = "got 0, which scales the adapter to nothing"
        yield Problem(("lora_alpha",), msg, "Leave it out for twice the rank.")


@problem("lora", "lora_path")
def a_saved_adapter_needs_lora(config: Any) -> Iterator[Problem]:
    if config.lora_path and not config.lora:
        yield Problem(("lora_path",), f"got {show(config.lora_path)}, and lora is false", "Set lora to true.")


@problem("prefix_tuning", "prefix_path")
def a_saved_prefix_needs_prefix_tuning(config: Any) -> Iterator[Problem]:
    if config.prefix_path and not config.prefix_tuning:
        msg = f"got {show(config.prefix_path)}, and prefix_tuning is false"
        yield Problem(("prefix_path",), msg, "Set prefix_tuning to true.")


@problem("lazy", "max_steps")
def a_stream_needs_an_end(config: Any) -> Iterator[Problem]:
    if config.lazy and config.max_steps < 1 and config.do_train:
        yield Problem(
            ("max_steps",), "not set, expected a number of steps because lazy is true", "Set max_steps."
        )


@problem("lr_scheduler_type", "lr_end", "learning_rate")
def polynomial_falls(config: Any) -> Iterator[Problem]:
    if config.lr_scheduler_type == "polynomial" and config.lr_end >= config.learning_rate > 0:
        yield Problem(
            ("lr_end",),
            f"got {config.lr_end}, expected less than learning_rate {config.learning_rate}",
            "Lower lr_end.",
        )


@warning("src_length", "max_length")
def no_room_for_a_target(config: Any) -> Iterator[Problem]:
    if config.src_length == config.max_length:
        yield Problem(
            ("src_length",),
            f"src_length equals max_length {config.max_length}, so a long source leaves its target no room",
            "Lower src_length or raise max_length.",
        )


@warning("max_steps", "save_strategy", "save_steps", "load_best_model_at_end")
def nothing_saved_before_the_end(config: Any) -> Iterator[Problem]:
    if config.do_train and config.save_strategy == "steps" and 0 < config.max_steps < config.save_steps:
        msg = f"save_steps {config.save_steps} > max_steps {config.max_steps}: no checkpoint before the end"
        if config.load_best_model_at_end:
            msg += ", so load_best_model_at_end has nothing to choose from"
        yield Problem(("save_steps",), msg, f"Set save_steps to at most {config.max_steps}.")


@warning("max_steps", "evaluation_strategy", "eval_steps")
def nothing_evaluated_before_the_end(config: Any) -> Iterator[Problem]:
    by_steps = config.do_train and config.evaluation_strategy == "steps" and config.eval_steps
    if by_steps and 0 < config.max_steps < config.eval_steps:
        msg = f"eval_steps {config.eval_steps} > max_steps {config.max_steps}: evaluated at the end only"
        yield Problem(("eval_steps",), msg, f"Set eval_steps to at most {config.max_steps}.")


@warning("max_steps", "warmup_steps")
def never_warm(config: Any) -> Iterator[Problem]:
    if 0 < config.max_steps <= config.warmup_steps:
        msg = f"warmup_steps {config.warmup_steps} >= max_steps {config.max_steps}: the rate never peaks"
        yield Problem(("warmup_steps",), msg, "Lower warmup_steps.")


@warning("warmup_steps", "warmup_ratio")
def warmup_said_twice(config: Any) -> Iterator[Problem]:
    if config.warmup_steps and config.warmup_ratio:
        msg = f"warmup_steps {config.warmup_steps} wins over warmup_ratio {config.warmup_ratio}"
        yield Problem(("warmup_ratio",), msg, "Leave one of them out.")


@warning("metric_for_best_model", "greater_is_better")
def the_worst_model_is_the_best(config: Any) -> Iterator[Problem]:
    metric, greater = config.metric_for_best_model, config.greater_is_better
    if metric is not None and greater == (metric in LOWER_IS_BETTER):
        direction = "larger" if greater else "smaller"
        msg = f"got {str(greater).lower()}: the checkpoint of the {direction} {metric} is taken as the best"
        yield Problem(("greater_is_better",), msg, "Leave it out.")


@warning("learning_rate")
def unusual_learning_rate(config: Any) -> Iterator[Problem]:
    if config.do_train and config.learning_rate == 0:
        yield Problem(("learning_rate",), "a learning rate of 0 changes nothing", "Use for example 3e-05.")
    if config.do_train and config.learning_rate > HIGH_LEARNING_RATE:
        msg = f"got {config.learning_rate}: AdamW diverges at such a rate"
        yield Problem(("learning_rate",), msg, "Use for example 3e-05.")


@warning("amp_master_grad", "fp16_opt_level")
def master_gradients_need_o2(config: Any) -> Iterator[Problem]:
    if config.amp_master_grad and config.fp16_opt_level != "O2":
        msg = f"it has no effect with fp16_opt_level {config.fp16_opt_level}"
        yield Problem(("amp_master_grad",), msg, "Set fp16_opt_level to O2.")


#: Options of a tuning method, by the switch without which they do nothing.
OPTIONS_OF = {
    "lora": ("lora_rank", "rslora", "lora_plus_scale", "lora_alpha", "lora_dropout", "target_modules"),
    "prefix_tuning": ("num_prefix_tokens", "prefix_projection", "prefix_projection_hidden_size"),
}


@warning("lora", "do_train")
def options_of_an_adapter_that_is_off(config: Any) -> Iterator[Problem]:
    if not config.do_train:
        return
    fields = type(config).model_fields
    for switch, options in OPTIONS_OF.items():
        if getattr(config, switch, True):
            continue
        for name in options:
            value = getattr(config, name)
            if value != fields[name].get_default(call_default_factory=True):
                msg = f"{show(value)} has no effect: {switch} is false"
                yield Problem((name,), msg, f"Set {switch} to true, or leave it out.")


@warning()
def options_without_their_switch(config: Any) -> Iterator[Problem]:
    fields = type(config).model_fields
    for name, switch in NEEDS.items():
        if name not in fields or switch not in fields or getattr(config, switch):
            continue
        value = getattr(config, name)
        if value != fields[name].default:
            yield Problem((name,), f"{show(value)} has no effect without {switch}", f"Set {switch} to true.")


#: Sets of words of which one has an effect, and why the others have none.
ONE_WORD = {
    "sharding_parallel_config": ("split_param", "the trainer chooses how its processes communicate"),
    "unified_checkpoint_config": ("async_save", "checkpoints have one layout and are always whole"),
}


@warning(*ONE_WORD)
def words_without_effect(config: Any) -> Iterator[Problem]:
    for name, (with_effect, reason) in ONE_WORD.items():
        others = [word for word in (getattr(config, name) or "").split() if word != with_effect]
        if others:
            msg = f"{show(' '.join(others))} has no effect: {reason}"
            yield Problem((name,), msg, "Leave it out; the result is the same.")


@warning("eval_with_do_generation", "do_eval")
def generation_without_evaluation(config: Any) -> Iterator[Problem]:
    if config.eval_with_do_generation and not config.do_eval:
        msg = "true has no effect: nothing is evaluated"
        yield Problem(("eval_with_do_generation",), msg, "Set do_eval to true.")


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
