"""Evaluation, saving, the best model."""

from typing import Literal

from trainer.config.fields.base import FieldGroup
from trainer.config.standing import later, setting
from trainer.config.values import Flag, PositiveOrUnset, Text, Whole


class EvaluationFields(FieldGroup):
    """When to evaluate and save, and which checkpoint is the best."""

    evaluation_strategy: Literal["no", "steps", "epoch"] = setting(
        "no", "When to evaluate; `no` becomes `steps` when do_train and do_eval are set."
    )
    eval_steps: Whole | None = setting(
        None, "Optimizer steps between evaluations; unset: logging_steps.", ge=1
    )
    eval_accumulation_steps: Whole | None = setting(
        None,
        "Most evaluation batches whose outputs stay on the device; each is reduced at once, so it is one.",
        ge=1,
    )
    max_evaluate_steps: PositiveOrUnset = setting(
        -1, "Most batches of one evaluation.", later("partial evaluation")
    )
    minimum_eval_times: Whole | None = setting(
        None, "Evaluate at least so often in a training.", later("a minimum number of evaluations"), ge=1
    )
    prediction_loss_only: Flag = setting(False, "Compute no metric besides the loss.")
    save_strategy: Literal["no", "steps", "epoch"] = setting("steps", "When to save checkpoints.")
    save_steps: Whole = setting(500, "Optimizer steps between checkpoints.", ge=1)
    save_total_limit: Whole | None = setting(
        None, "Newest checkpoints to keep, besides the best; unset or 0: all.", ge=-1
    )
    load_best_model_at_end: Flag | None = setting(False, "End with the checkpoint of the best metric.")
    metric_for_best_model: Text | None = setting(
        None, "Metric that tells the best checkpoint; with load_best_model_at_end unset: loss."
    )
    greater_is_better: Flag | None = setting(
        None,
        "Whether a larger metric is better; unset: unless it is a loss, a perplexity, KL, or a measure of"
        " rejected responses.",
    )
