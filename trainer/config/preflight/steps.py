"""How many optimizer steps the data makes, and what that means for warmup, evaluation and checkpoints.

The last step of a training is always evaluated and saved when there is a strategy.
"""

import math
from collections.abc import Iterator

from trainer.config.problems import Problem
from trainer.config.schema import RunConfig


def steps_per_epoch(config: RunConfig, examples: int) -> int:
    """Optimizer steps of one epoch; micro-batches left at its end make a step of their own."""
    batch = config.per_device_train_batch_size
    batches = examples // batch if config.dataloader_drop_last else math.ceil(examples / batch)
    return math.ceil(batches / config.gradient_accumulation_steps)


def check_steps(config: RunConfig, examples: int) -> tuple[list[Problem], list[Problem], int]:
    """Problems, warnings and the number of optimizer steps of the whole training.

    Args:
        examples: how many there are in an epoch; with zero_padding, how many packs of them.
    """
    epoch = steps_per_epoch(config, examples)
    if epoch == 0:
        msg = f"true with {examples} examples and per_device_train_batch_size "
        msg += f"{config.per_device_train_batch_size}: every batch is dropped"
        return [Problem(("dataloader_drop_last",), msg, "Set it to false or use smaller batches.")], [], 0
    if config.max_steps > 0:
        return [], [], config.max_steps
    total = max(1, int(epoch * config.num_train_epochs))
    return [], list(_warnings(config, total)), total


def _warnings(config: RunConfig, total: int) -> Iterator[Problem]:
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
