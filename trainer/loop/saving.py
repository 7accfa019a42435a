"""Checkpoints of a run: when one is complete it is told, and old ones are removed."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager

from trainer.checkpoint.contents import checkpoint_contents
from trainer.checkpoint.directory import Part, remove_directory
from trainer.checkpoint.find import Checkpoint, list_checkpoints
from trainer.checkpoint.rotation import surplus
from trainer.checkpoint.target import whole_directory_target
from trainer.config.problems import RegattaError
from trainer.loop.setup import Run

log = logging.getLogger(__name__)


def save(run: Run, metrics: dict[str, float]) -> None:
    """Save a checkpoint of the present step; when it is complete, remove those over save_total_limit.

    All processes call this after the same step. With asynchronous saving it may be complete only when the
    saver is asked again, but always before the next one is begun.

    Args:
        run: the run.
        metrics: of the evaluation after this step; empty when there was none. Only a checkpoint with metrics
            can become the best one.
    """
    # What the state says of the best checkpoint must not change while an earlier one is under way.
    run.saver.wait()
    config, state = run.config, run.state
    checkpoint = Checkpoint(run.output_dir / f"checkpoint-{state.step}", state.step)
    best = _note_best(run, checkpoint.name, metrics)
    state.loss_scaling = run.precision.state()
    contents = checkpoint_contents(
        run.model,
        run.update,
        run.tokenizer,
        state.as_dict(run.plan.total_steps, run.plan.total_epochs),
        with_optimizer=not config.ignore_save_lr_and_optim,
        models=run.objective.models(),
    )

    def complete() -> None:
        run.saved_step = checkpoint.step
        run.report.saved(checkpoint, metrics, best)
        if run.layout.is_host_main:
            _remove_surplus(run, checkpoint)

    part = Part(run.layout.host, run.layout.separate_hosts)
    run.saver.save(whole_directory_target(checkpoint.path, part), contents, complete)


@contextmanager
def whole_saves(run: Run) -> Iterator[None]:
    """When the block ends, no save is under way any more, not even after an error."""
    try:
        yield
    except Exception as error:
        failure = run.saver.abandon()
        # Where a process could not save, the others only see that it is gone.
        if failure is not None and not isinstance(error, RegattaError):
            raise failure from error
        raise
    run.saver.wait()


def _remove_surplus(run: Run, last: Checkpoint) -> None:
    """Remove checkpoints over save_total_limit; `last` is complete, and the best one of the state is too."""
    found = list_checkpoints(run.output_dir)
    for old in surplus(found, run.config.save_total_limit, last, run.state.best_checkpoint):
        remove_directory(old.path)
        run.report.removed(old)


def _note_best(run: Run, name: str, metrics: dict[str, float]) -> bool:
    """Keep the best value of metric_for_best_model; True when `metrics` has it."""
    wanted, state = run.config.metric_for_best_model, run.state
    if not wanted or not metrics:
        return False
    metric = wanted if wanted.startswith("eval_") else f"eval_{wanted}"
    value = metrics[metric]
    known = state.best_metric
    better = known is None or (value > known if run.config.greater_is_better else value < known)
    if better and math.isfinite(value):
        state.best_metric, state.best_checkpoint = value, name
        return True
    return False
