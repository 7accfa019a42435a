"""How many optimizer steps the data makes, and what that means for warmup, evaluation and checkpoints.

A step takes `gradient_accumulation_steps` micro-batches for each of the `data_ways` processes (or groups of
them) that have data of their own. The last step of a training is always evaluated and saved when there is a
strategy.
"""

import math
from collections.abc import Iterator

from trainer.config.problems import Problem
from trainer.config.schema import TrainingConfig


def steps_per_epoch(config: TrainingConfig, examples: int, data_ways: int = 1) -> int:
    """Optimizer steps of one epoch; micro-batches left at its end make a step of their own."""
    return math.ceil(_micro_batches(config, examples) / (config.gradient_accumulation_steps * data_ways))


def _micro_batches(config: TrainingConfig, examples: int) -> int:
    """Micro-batches of one epoch."""
    batch = config.per_device_train_batch_size
    return examples // batch if config.dataloader_drop_last else math.ceil(examples / batch)


def check_steps(
    config: TrainingConfig, examples: int, data_ways: int = 1
) -> tuple[list[Problem], list[Problem], int]:
    """Problems, warnings and the number of optimizer steps of the whole training.

    Args:
        examples: how many there are in an epoch; with zero_padding, how many packs of them.
    """
    epoch = steps_per_epoch(config, examples, data_ways)
    if epoch == 0:
        msg = f"true with {examples} examples and per_device_train_batch_size "
        msg += f"{config.per_device_train_batch_size}: every batch is dropped"
        return [Problem(("dataloader_drop_last",), msg, "Set it to false or use smaller batches.")], [], 0
    warnings = list(_idle(config, _micro_batches(config, examples), data_ways))
    if config.max_steps > 0:
        return [], warnings, config.max_steps
    total = max(1, int(epoch * config.num_train_epochs))
    return [], [*warnings, *_warnings(config, total)], total


def _idle(config: TrainingConfig, micro_batches: int, data_ways: int) -> Iterator[Problem]:
    if micro_batches < data_ways:
        batch = config.per_device_train_batch_size
        msg = f"the training data make {micro_batches} batches of {batch}, for {data_ways} devices with data"
        msg += f" of their own: {data_ways - micro_batches} of them have nothing to do"
        hint = "Use a smaller per_device_train_batch_size, or fewer devices."
        yield Problem(("per_device_train_batch_size",), msg, hint)


def _warnings(config: TrainingConfig, total: int) -> Iterator[Problem]:
    if config.warmup_steps >= total:
        msg = f"warmup_steps {config.warmup_steps} >= {total} optimizer steps in all: the rate never peaks"
        yield Problem(("warmup_steps",), msg, "Lower warmup_steps.")
    if config.evaluation_strategy == "steps" and config.eval_steps and config.eval_steps > total:
        msg = f"eval_steps {config.eval_steps} > {total} optimizer steps in all: evaluated at the end only"
        yield Problem(("eval_steps",), msg, f"Set eval_steps to at most {total}.")
    if config.save_strategy == "steps" and config.save_steps > total:
        msg = f"save_steps {config.save_steps} > {total} optimizer steps in all: no checkpoint before the end"
        if config.load_best_model_at_end:
            msg += ", so load_best_model_at_end has nothing to choose from"
        yield Problem(("save_steps",), msg, f"Set save_steps to at most {total}.")
