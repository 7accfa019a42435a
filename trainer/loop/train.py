"""The training loop."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from trainer.config.problems import DataError, Problem
from trainer.data.batches import StepRows, epoch_steps
from trainer.loop.plan import evaluation_due, logging_due, saving_due
from trainer.loop.saving import save, whole_saves
from trainer.loop.setup import Run, StopQuestion
from trainer.loop.step import NonFiniteLossError, StepResult, train_step

log = logging.getLogger(__name__)

#: So many fp16 steps skipped in a row mean that no loss scale helps.
MAX_SKIPPED_STEPS = 25


def train(run: Run, should_stop: StopQuestion) -> bool:
    """Train from where the run stands to its last step.

    After each step comes what is due: log, then evaluate, then save.

    Returns:
        True when `should_stop` ended it early. The newest checkpoint then holds the last step taken.
    """
    _say_where_it_begins(run)
    with whole_saves(run):
        return _train(run, should_stop)


def _train(run: Run, should_stop: StopQuestion) -> bool:
    config, state, plan = run.config, run.state, run.plan
    run.report.begin()
    if _evaluation_is_missing(run) and not _close_step(run, should_stop):
        return _stop(run)
    skipped_in_a_row = 0
    for step in _steps_left(run):
        if should_stop():
            return _stop(run)
        rate = run.schedule.rate(state.schedule_step)
        result = _take_step(run, step, rate)
        run.saver.poll()
        skipped_in_a_row = skipped_in_a_row + 1 if result.skipped else 0
        _refuse_endless_skipping(skipped_in_a_row, state.step)
        if logging_due(config, plan, state):
            run.report.log_step(result, rate)
        if not _close_step(run, should_stop):
            return _stop(run)
    return False


def _steps_left(run: Run) -> Iterator[StepRows]:
    """The rows of every step from where the run stands to its last one, epoch after epoch."""
    config, state = run.config, run.state
    batch_size, drop_last = config.per_device_train_batch_size, config.dataloader_drop_last
    micro_batches = config.gradient_accumulation_steps * run.layout.topology.data_ways
    while state.step < run.plan.total_steps:
        if run.train.count is not None:
            state.begin_epoch(run.train.count, batch_size, drop_last)
        rows = run.train.epoch(state.epoch, state.consumed)
        first_step = state.step
        for step in epoch_steps(rows, batch_size, micro_batches, drop_last):
            yield step
            if state.step >= run.plan.total_steps:
                return
        if state.step == first_step:
            _leave_empty_epoch(run)


def _take_step(run: Run, step: StepRows, rate: float) -> StepResult:
    """One optimizer step at learning rate `rate`, counted in the state and the report."""
    config, state = run.config, run.state
    run.report.step_begins()
    batches = [run.collate(part) for part in step.parts]
    run.layout.seed_step(config.seed, state.step)
    result = train_step(run.engine, run.update, run.objective, batches, step=state.step + 1, rate=rate)
    _count(run, batches, step.last)
    if result.skipped:
        state.skipped += 1
    else:
        state.add_loss(result.loss, result.measures)
        run.objective.stepped(run.model, state.step)
    return result


def _close_step(run: Run, should_stop: StopQuestion) -> bool:
    """Evaluate and save, where due after the present step. False: asked to stop while evaluating."""
    config, state = run.config, run.state
    metrics: dict[str, float] | None = {}
    if evaluation_due(config, run.plan, state) and run.dev is not None:
        metrics = run.dev.measure(run.engine, should_stop)
        if metrics is None:
            return False
        run.report.log_evaluation(metrics)
    if saving_due(config, run.plan, state):
        save(run, metrics)
    return True


def _leave_empty_epoch(run: Run) -> None:
    """Go on to the next epoch of a stream that has no step left in this one."""
    state = run.state
    if not state.consumed:
        raise DataError(
            Problem(
                ("dataloader_drop_last",),
                "every batch of the training data is dropped because none of them is full",
                "Set it to false or use smaller batches.",
            )
        )
    state.epoch += 1
    state.consumed = 0


def _stop(run: Run) -> bool:
    run.saver.wait()
    if run.saved_step != run.state.step:
        save(run, {})
    log.info("stopped after step %d of %d", run.state.step, run.plan.total_steps)
    return True


def _evaluation_is_missing(run: Run) -> bool:
    """Whether the checkpoint that the run began with was saved before its step's evaluation, by a stop."""
    state = run.state
    due = state.step > 0 and evaluation_due(run.config, run.plan, state)
    return due and state.evaluation(state.step) is None


def _say_where_it_begins(run: Run) -> None:
    state, total = run.state, run.plan.total_steps
    rows = "a stream" if run.train.count is None else f"{run.train.count} rows"
    if state.step >= total:
        run.events.warn(
            Problem(
                ("num_train_epochs",),
                f"this run is already at step {state.step} of {total}, so there is nothing left to train",
                "Raise num_train_epochs or max_steps to train on.",
            )
        )
    elif state.step:
        log.info(
            "going on from step %d of %d (epoch %.2f), %s an epoch", state.step, total, state.epochs, rows
        )
    else:
        epochs = run.plan.total_epochs
        length = "" if epochs is None else f" ({epochs:.3g} epochs)"
        log.info("training for %d steps%s, %s an epoch", total, length, rows)


def _refuse_endless_skipping(in_a_row: int, step: int) -> None:
    if in_a_row >= MAX_SKIPPED_STEPS:
        raise NonFiniteLossError(
            Problem(
                ("fp16",),
                f"the last {in_a_row} steps up to step {step} were skipped: gradients overflowed in fp16",
                "Use bf16 instead of fp16, or lower learning_rate.",
            )
        )


def _count(run: Run, batches: list[Any], last: bool) -> None:
    """Count a step's batches in the state and the report; `last`: they end an epoch."""
    tokens = sum(batch.tokens for batch in batches)
    padding = sum(batch.input_ids.size for batch in batches) - tokens
    run.state.advance(sum(batch.rows for batch in batches), tokens, padding, ends_epoch=last)
    run.report.step_ends(sum(batch.examples for batch in batches), tokens)
