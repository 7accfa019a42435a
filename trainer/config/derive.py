"""Values that follow from others: what PaddleNLP's arguments become once they are all known.

Each function takes the config as written and the names that the user set, and gives the arguments it changes.
"""

from collections.abc import Callable, Collection
from typing import Any

from trainer.config.fields.preference import WITHOUT_REFERENCE
from trainer.config.problems import Problem
from trainer.config.schema import PreferenceConfig, TaskConfig, TrainingConfig

_LOWER = ("loss", "ppl", "rewards/rejected", "logps/rejected", "kl")
LOWER_IS_BETTER = frozenset([*_LOWER, *(f"eval_{name}" for name in _LOWER)])
WORK = ("do_train", "do_eval", "do_predict", "do_export", "do_ptq", "do_gptq", "do_awq", "do_qat")
TRAINING_TASKS = ("finetune", "dpo", "kto")

Derivation = Callable[[Any, Collection[str]], tuple[dict[str, Any], Problem | None]]


def derive(config: TaskConfig, given: Collection[str]) -> tuple[TaskConfig, list[Problem]]:
    """The config with every derived value in place, and warnings about derivations that may surprise."""
    warnings: list[Problem] = []
    if not isinstance(config, TrainingConfig):
        return config, warnings
    for derivation in DERIVATIONS:
        update, warning = derivation(config, given)
        if update:
            config = config.model_copy(update=update)
        if warning:
            warnings.append(warning)
    return config, warnings


def evaluate_only(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """Task evaluate takes an argument file of finetune and only evaluates, the saved adapter included."""
    if config.task != "evaluate":
        return {}, None
    update = {
        "do_train": False,
        "do_eval": True,
        "evaluation_strategy": "no",
        "load_best_model_at_end": False,
        "resume_from_checkpoint": None,
        "lora": config.lora_path is not None,
        "prefix_tuning": config.prefix_path is not None,
    }
    if not config.do_train:
        return update, None
    msg = "true has no effect: task evaluate does not train"
    return update, Problem(("do_train",), msg, "Use task finetune to train.")


def train_unless_told_otherwise(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """No do_* flag at all: train. PaddleNLP would build the model and end."""
    if config.task not in TRAINING_TASKS or any(flag in given for flag in WORK):
        return {}, None
    warning = Problem(
        ("do_train",), "no do_* flag is set, so do_train is taken as true", "Set do_train to true."
    )
    return {"do_train": True}, warning


def evaluate_when_there_is_a_strategy(
    config: Any, given: Collection[str]
) -> tuple[dict[str, Any], Problem | None]:
    """evaluation_strategy says that there are evaluations, whatever do_eval says."""
    if config.evaluation_strategy == "no" or config.do_eval:
        return {}, None
    if "do_eval" not in given:
        return {"do_eval": True}, None
    msg = f"do_eval false is overruled by evaluation_strategy {config.evaluation_strategy}"
    return {"do_eval": True}, Problem(
        ("do_eval",), msg, "To leave evaluation out, set evaluation_strategy to no."
    )


def evaluate_by_steps_by_default(
    config: Any, given: Collection[str]
) -> tuple[dict[str, Any], Problem | None]:
    """do_eval in a training without a strategy: evaluate every eval_steps, as PaddleNLP does."""
    if not (config.do_train and config.do_eval and config.evaluation_strategy == "no"):
        return {}, None
    steps = config.eval_steps or config.logging_steps
    msg = f"do_eval without evaluation_strategy evaluates every {steps} optimizer steps"
    warning = Problem(("evaluation_strategy",), msg, "Set evaluation_strategy to steps or epoch.")
    return {"evaluation_strategy": "steps"}, warning


def eval_steps_follow_logging_steps(
    config: Any, given: Collection[str]
) -> tuple[dict[str, Any], Problem | None]:
    """Evaluate as often as to log, when nothing else is said."""
    if config.evaluation_strategy == "steps" and config.eval_steps is None:
        return {"eval_steps": config.logging_steps}, None
    return {}, None


def best_metric(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """The loss is the metric of the best model; losses and perplexities are better when smaller."""
    update: dict[str, Any] = {}
    metric = config.metric_for_best_model
    if config.load_best_model_at_end and metric is None:
        metric = update["metric_for_best_model"] = "loss"
    if metric is not None and config.greater_is_better is None:
        update["greater_is_better"] = metric not in LOWER_IS_BETTER
    return update, None


def no_limit_of_checkpoints(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """A limit of 0 or -1 keeps all checkpoints."""
    if config.save_total_limit is not None and config.save_total_limit < 1:
        return {"save_total_limit": None}, None
    return {}, None


def tokenizer_of_the_model(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """The tokenizer lies beside the model unless it is said where."""
    if config.tokenizer_name_or_path is None:
        return {"tokenizer_name_or_path": config.model_name_or_path}, None
    return {}, None


def template_of_the_model(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """The model's name as chat_template means the template that lies beside the model's tokenizer.

    In preference training an unset template is raw text, so there the name stays.
    """
    template = None if isinstance(config, PreferenceConfig) else getattr(config, "chat_template", None)
    own_tokenizer = config.tokenizer_name_or_path == config.model_name_or_path
    if template is not None and template == config.model_name_or_path and own_tokenizer:
        return {"chat_template": None}, None
    return {}, None


def cpu_without_cuda(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """no_cuda is the old way to say device cpu."""
    return ({"device": "cpu"} if config.no_cuda else {}), None


def rslora_plus(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """rslora_plus is short for three other arguments."""
    if getattr(config, "rslora_plus", False):
        return {"rslora": True, "lora_plus_scale": 4.0, "lora_alpha": 4}, None
    return {}, None


def lora_alpha(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """Without an alpha the scale is 2 for any rank; with rslora alpha is 4. A saved adapter has its own."""
    if not config.lora or config.lora_path or config.lora_alpha >= 0:
        return {}, None
    return {"lora_alpha": 4 if config.rslora else 2 * config.lora_rank}, None


def orpo(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """ORPO is the odds ratio loss beside an SFT loss of weight 1."""
    if config.task != "dpo" or config.loss_type != "orpo":
        return {}, None
    update = {"loss_type": "or", "sft_loss_ratio": 1.0}
    if "sft_loss_ratio" not in given or config.sft_loss_ratio == 1:
        return update, None
    msg = f"{config.sft_loss_ratio} is overruled: loss_type orpo has an SFT loss of weight 1"
    return update, Problem(("sft_loss_ratio",), msg, "Set loss_type to or, or leave it out.")


def losses_without_reference(config: Any, given: Collection[str]) -> tuple[dict[str, Any], Problem | None]:
    """Losses whose formula has no reference are reference-free, whatever reference_free says."""
    if config.task != "dpo" or config.reference_free or config.loss_type not in WITHOUT_REFERENCE:
        return {}, None
    if "reference_free" not in given:
        return {"reference_free": True}, None
    msg = f"false is overruled: loss_type {config.loss_type} has no reference"
    return {"reference_free": True}, Problem(("reference_free",), msg, "Leave it out.")


DERIVATIONS: tuple[Derivation, ...] = (
    evaluate_only,
    train_unless_told_otherwise,
    evaluate_when_there_is_a_strategy,
    evaluate_by_steps_by_default,
    eval_steps_follow_logging_steps,
    best_metric,
    no_limit_of_checkpoints,
    tokenizer_of_the_model,
    template_of_the_model,
    cpu_without_cuda,
    rslora_plus,
    lora_alpha,
    orpo,
    losses_without_reference,
)
