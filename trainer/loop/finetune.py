"""Task finetune: supervised fine-tuning of a causal language model, in one process."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from trainer import load_tokenizer
from trainer.config import FinetuneConfig
from trainer.data.batches import Collator
from trainer.data.encoding import build_encoder, ending_warning
from trainer.events import EventWriter
from trainer.loop.adapters import starting_model
from trainer.loop.data import evaluation_data, training_rows
from trainer.loop.device import choose_device
from trainer.loop.evaluation import EvaluationData, evaluate
from trainer.loop.final import final_evaluation, finish, finish_stopped, take_best_model
from trainer.loop.precision import Precision, choose_precision, make_precision
from trainer.loop.report import log_metrics
from trainer.loop.results import write_results
from trainer.loop.resume import starting_checkpoint
from trainer.loop.setup import StopQuestion, build_collator, count_parameters, count_trainable, prepare_run
from trainer.loop.train import train
from trainer.models.base import CausalLM

log = logging.getLogger(__name__)


def finetune(config: FinetuneConfig, events: EventWriter, should_stop: StopQuestion) -> dict[str, Any]:
    """Run the task from its arguments to its result.

    Args:
        config: its paths are absolute, or relative to the working directory.
        events: where progress is told.
        should_stop: asked between steps; True means: save a checkpoint and end.

    Returns:
        The fields of the ``result`` event: path, metrics, stopped.

    Raises:
        ConfigError, DataError: the arguments, the model or the data cannot be used.
        TrainingError: training could not go on.
    """
    config = config.model_copy(update={"output_dir": str(Path(config.output_dir).resolve())})
    Path(config.output_dir).mkdir(parents=True, exist_ok=True)
    device = choose_device(config)
    precision, warning = choose_precision(config, device)
    if warning:
        events.warn(warning)
    start = starting_checkpoint(config, events) if config.do_train else None
    tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path)
    encoder = build_encoder(config, tokenizer)
    if warning := ending_warning(config, tokenizer):
        events.warn(warning)
    train_data = training_rows(config, encoder, events) if config.do_train else None
    dev_data = evaluation_data(config, encoder, tokenizer, events) if config.do_eval else None
    collate = build_collator(config, tokenizer)
    model = starting_model(config, start)
    all_parameters, trainable = count_parameters(model), count_trainable(model)
    log.info(
        "%s, %.4g million parameters, on %s; %d of them are trained (%.3g %%)",
        *(model.config.model_type, all_parameters / 1e6, device, trainable, 100 * trainable / all_parameters),
    )
    if train_data is None:
        return _evaluate_only(config, events, dev_data, collate, model, precision, should_stop)

    run = prepare_run(config, events, train_data, dev_data, collate, tokenizer, model, precision, start)
    began = time.monotonic()
    stopped = train(run, should_stop)
    seconds = time.monotonic() - began
    if stopped:
        return finish_stopped(run, seconds)
    step = take_best_model(run)
    return finish(run, seconds, final_evaluation(run, step, should_stop))


def _evaluate_only(
    config: FinetuneConfig,
    events: EventWriter,
    data: EvaluationData | None,
    collate: Collator,
    model: CausalLM,
    precision: Precision,
    should_stop: StopQuestion,
) -> dict[str, Any]:
    """do_eval without do_train: measure the model and write nothing but the result files."""
    output_dir = Path(config.output_dir)
    result: dict[str, Any] = {"path": str(output_dir), "metrics": {}, "stopped": False}
    if data is None:
        return result
    batch_size, mixing = config.per_device_eval_batch_size, make_precision(precision, config)
    metrics = evaluate(model, data, collate, batch_size, mixing, should_stop)
    if metrics is None:
        return result | {"stopped": True}
    log_metrics(events, {"step": 0, "epoch": 0.0, **metrics})
    return result | {"metrics": write_results(output_dir, {"eval": metrics})}
