"""How many steps a run takes, and what is due after each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.config.preflight.steps import steps_per_epoch
from trainer.loop.state import TrainState

if TYPE_CHECKING:
    from trainer.config.schema import RunConfig


@dataclass(frozen=True)
class Plan:
    """The steps of a run.

    Attributes:
        total_steps: the step after which the run ends.
        total_epochs: epochs the whole run covers, as a fraction; None when the data is a stream.
    """

    total_steps: int
    total_epochs: float | None


def plan_steps(config: RunConfig, rows: int | None, state: TrainState, data_ways: int = 1) -> Plan:
    """The plan for a data set of `rows` rows (None: a stream), seen from where `state` stands.

    max_steps > 0 decides alone. Otherwise the run ends after num_train_epochs of data: for a run that is
    resumed with another batch size that is its step so far plus the steps which the rest of the data now
    takes.
    """
    if rows is None:
        return Plan(config.max_steps, None)
    per_epoch = steps_per_epoch(config, rows, data_ways)
    if config.max_steps > 0:
        return Plan(config.max_steps, config.max_steps / per_epoch)
    left_in_epoch = steps_per_epoch(config, max(0, rows - state.consumed), data_ways)
    position = (state.epoch + 1) * per_epoch - left_in_epoch
    wanted = max(1, int(per_epoch * config.num_train_epochs))
    total = state.step + max(0, wanted - position)
    return Plan(total, float(config.num_train_epochs))


def logging_due(config: RunConfig, plan: Plan, state: TrainState) -> bool:
    """Whether to log after this step: always after the last one, unless the strategy is "no"."""
    if config.logging_first_step and state.step == 1:
        return True
    return _due(config.logging_strategy, config.logging_steps, plan, state)


def evaluation_due(config: RunConfig, plan: Plan, state: TrainState) -> bool:
    """Whether to evaluate after this step: always after the last one, unless the strategy is "no"."""
    steps = config.eval_steps or config.logging_steps
    return _due(config.evaluation_strategy, steps, plan, state)


def saving_due(config: RunConfig, plan: Plan, state: TrainState) -> bool:
    """Whether to save after this step: always after the last one, unless the strategy is "no"."""
    return _due(config.save_strategy, config.save_steps, plan, state)


def _due(strategy: str, every: int, plan: Plan, state: TrainState) -> bool:
    if strategy == "no":
        return False
    if state.step >= plan.total_steps:
        return True
    return state.at_epoch_end if strategy == "epoch" else state.step % every == 0
