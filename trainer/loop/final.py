"""The end of a run: which weights are its result, what they are worth, and the files that say so."""

from __future__ import annotations

import logging
from typing import Any

from trainer.checkpoint.contents import load_trained_weights, model_contents
from trainer.checkpoint.find import STATE_FILE, checkpoint_damage
from trainer.checkpoint.target import files_target
from trainer.config.problems import Problem
from trainer.events import finite
from trainer.files import write_json
from trainer.loop.layouts import from_host, from_main
from trainer.loop.peak import peak_memory
from trainer.loop.report import log_metrics
from trainer.loop.results import write_results
from trainer.loop.setup import Run, StopQuestion, count_parameters

log = logging.getLogger(__name__)


def take_best_model(run: Run) -> int:
    """With load_best_model_at_end, put the best checkpoint's weights into the run; returns their step."""
    state = run.state
    if not run.config.load_best_model_at_end:
        return state.step
    if state.best_checkpoint is None:
        _warn_no_best(run, "no checkpoint was saved together with an evaluation")
        return state.step
    step = int(state.best_checkpoint.rpartition("-")[2])
    if step == state.step:
        return step
    path = run.output_dir / state.best_checkpoint
    run.saver.bring_together(path)
    found = from_host(
        run.layout, lambda: checkpoint_damage(path) if path.is_dir() else "it is no longer there"
    )
    if damage := next((one for one in found if one is not None), None):
        _warn_no_best(run, f"{state.best_checkpoint} cannot be used: {damage}")
        return state.step
    log.info("taking the best model, %s (%s %.6g)", path, run.config.metric_for_best_model, state.best_metric)
    load_trained_weights(run.update, path)
    return step


def final_evaluation(run: Run, step: int, should_stop: StopQuestion) -> dict[str, Any] | None:
    """Metrics of the run's present weights, which are those after `step`.

    They are taken from the history when it has them. None when `should_stop` ended the evaluation.
    """
    if known := run.state.evaluation(step):
        return known
    if run.dev is None:
        return None
    metrics = run.dev.measure(run.engine, should_stop)
    if metrics is None:
        log.warning("the final evaluation was stopped before its end")
        return None
    entry = {"step": step, "epoch": run.state.epochs, **metrics}
    run.state.log_history.append(entry)
    log_metrics(run.events, entry)
    return entry


def finish(run: Run, seconds: float, evaluation: dict[str, Any] | None) -> dict[str, Any]:
    """Write the final model and the result files to output_dir; returns the result.

    Args:
        run: at its end.
        seconds: how long this process trained.
        evaluation: metrics of the final weights, if they were evaluated.
    """
    state = run.state
    log.info("writing the final model to %s", run.output_dir)
    contents = model_contents(run.model, run.update, run.tokenizer)
    run.saver.save(files_target(run.output_dir), contents, in_background=False)
    run.saver.close()
    results: dict[str, dict[str, Any]] = {"train": _train_results(run, seconds)}
    if evaluation is not None:
        results["eval"] = {name: value for name, value in evaluation.items() if name.startswith("eval_")}
    stored = state.as_dict(run.plan.total_steps, run.plan.total_epochs)

    def write() -> dict[str, Any]:
        metrics = write_results(run.output_dir, results)
        write_json(run.output_dir / STATE_FILE, finite(stored))
        return metrics

    metrics = from_main(run.layout, write)
    if state.best_metric is not None:
        metrics |= {"best_metric": state.best_metric, "best_model_checkpoint": state.best_checkpoint}
    return {"path": str(run.output_dir), "metrics": metrics, "stopped": False}


def finish_stopped(run: Run, seconds: float) -> dict[str, Any]:
    """The result of a run that was asked to stop: its newest checkpoint."""
    run.saver.close()
    path = run.output_dir / f"checkpoint-{run.state.step}"
    return {"path": str(path), "metrics": _train_results(run, seconds), "stopped": True}


def _train_results(run: Run, seconds: float) -> dict[str, Any]:
    state, report = run.state, run.report
    parameters, trainable = count_parameters(run.layout, run.model)
    results: dict[str, Any] = {
        "step": state.step,
        "epoch": state.epochs,
        "train_runtime": seconds,
        "train_tokens": state.tokens,
        "padding_share": state.padding_share,
        "parameters": parameters,
        "trainable_parameters": trainable,
        **peak_memory(run.layout),
        "train_steps_per_second": report.steps / seconds if seconds else 0.0,
        "train_samples_per_second": report.samples / seconds if seconds else 0.0,
    }
    if state.step > state.skipped:
        results["train_loss"] = state.loss_sum / (state.step - state.skipped)
    if state.skipped:
        results["skipped_steps"] = state.skipped
    return results


def _warn_no_best(run: Run, why: str) -> None:
    run.events.warn(
        Problem(
            ("load_best_model_at_end",),
            f"the final model is that of the last step, not the best one: {why}",
            "Let evaluation_strategy and save_strategy be the same, and their steps fit.",
        )
    )
