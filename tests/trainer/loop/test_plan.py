from collections.abc import Callable
from typing import Any

import pytest

from trainer.config import FinetuneConfig
from trainer.loop.plan import Plan, evaluation_due, logging_due, plan_steps, saving_due
from trainer.loop.state import TrainState

MakeConfig = Callable[..., FinetuneConfig]


def due_steps(question: Callable[..., bool], config: FinetuneConfig, total: int, per_epoch: int) -> list[int]:
    found = []
    for step in range(1, total + 1):
        state = TrainState(step=step, epoch=step // per_epoch, consumed=step % per_epoch)
        if question(config, Plan(total, 1.0), state):
            found.append(step)
    return found


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({}, 8),
        ({"num_train_epochs": 1.5}, 6),
        ({"num_train_epochs": 0.1}, 1),
        ({"dataloader_drop_last": True, "per_device_train_batch_size": 4}, 4),
        ({"gradient_accumulation_steps": 100}, 2),
        ({"max_steps": 3}, 3),
        ({"max_steps": 50, "num_train_epochs": 1}, 50),
    ],
)
def test_total_steps_of_14_examples(make_config: MakeConfig, changes: dict[str, Any], total: int) -> None:
    assert plan_steps(make_config(**changes), 14, TrainState()).total_steps == total


@pytest.mark.parametrize("step", range(9))
def test_the_total_is_the_same_from_wherever_a_run_is_resumed(make_config: MakeConfig, step: int) -> None:
    state = TrainState()
    for _ in range(step):
        state.begin_epoch(14, 2, drop_last=False)
        state.advance(min(4, 14 - state.consumed), tokens=0)
    assert plan_steps(make_config(), 14, state).total_steps == 8


def test_another_batch_size_on_resume_changes_the_steps_that_are_left_and_not_the_data(
    make_config: MakeConfig,
) -> None:
    state = TrainState(step=2, epoch=0, consumed=8, epoch_rows=14)
    plan = plan_steps(make_config(gradient_accumulation_steps=1), 14, state)
    assert plan.total_steps == 2 + 3 + 7


def test_by_steps_means_every_so_many_and_the_last_one(make_config: MakeConfig) -> None:
    config = make_config(
        evaluation_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=5, logging_steps=2
    )
    assert due_steps(logging_due, config, 7, 4) == [2, 4, 6, 7]
    assert due_steps(evaluation_due, config, 7, 4) == [3, 6, 7]
    assert due_steps(saving_due, config, 7, 4) == [5, 7]


def test_by_epoch_means_at_each_end_of_an_epoch_and_the_last_step(make_config: MakeConfig) -> None:
    config = make_config(evaluation_strategy="epoch", save_strategy="epoch", logging_strategy="epoch")
    for question in (logging_due, evaluation_due, saving_due):
        assert due_steps(question, config, 10, 4) == [4, 8, 10]


def test_no_means_never(make_config: MakeConfig) -> None:
    config = make_config(save_strategy="no", logging_strategy="no")
    for question in (logging_due, evaluation_due, saving_due):
        assert due_steps(question, config, 10, 4) == []


def test_the_first_step_is_logged_when_asked_for(make_config: MakeConfig) -> None:
    config = make_config(logging_first_step=True, logging_steps=5)
    assert due_steps(logging_due, config, 10, 4) == [1, 5, 10]
