"""One optimizer step: gradients of all micro-batches add up, so 2 x 2 examples are 1 x 4 examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle

from trainer.config.problems import Problem, TrainingError
from trainer.loop.neftune import EmbeddingNoise
from trainer.loop.objective import Measures, Objective
from trainer.loop.optimizer import clip_gradients
from trainer.loop.precision import FullPrecision
from trainer.models.base import CausalLM


class NonFiniteLossError(TrainingError):
    """The loss or its gradient became NaN or infinite."""

    kind = "nan_loss"


@dataclass(frozen=True)
class StepResult:
    """What one step did: its loss, the gradients' global norm before clipping, what else was measured.

    `skipped`: fp16 gradients overflowed, so the weights did not change.
    """

    loss: float
    grad_norm: float
    skipped: bool
    measures: Measures = field(default_factory=dict)


def train_step(
    model: CausalLM,
    optimizer: paddle.optimizer.AdamW,
    objective: Objective,
    batches: Sequence[Any],
    *,
    step: int,
    rate: float,
    max_grad_norm: float,
    precision: FullPrecision,
    noise: EmbeddingNoise | None = None,
) -> StepResult:
    """Take optimizer step number `step` (from 1) over the micro-batches `batches` at learning rate `rate`.

    Raises:
        NonFiniteLossError: the loss or the gradient is not finite; the weights are left as they were.
    """
    loss = objective.begin(model, batches, precision)
    total = 0.0
    for number, batch in enumerate(batches):
        if noise is not None:
            noise.expect(batch)
        with precision.autocast():
            part = loss.part(number)
        precision.backward(part)
        total += float(part)
    precision.unscale(optimizer)
    grad_norm = clip_gradients(model.parameters(), max_grad_norm)
    finite = math.isfinite(total) and math.isfinite(grad_norm)
    if not finite and not precision.may_skip:
        optimizer.clear_grad()
        raise _non_finite(step, total, grad_norm, rate)
    optimizer.set_lr(rate)
    precision.update(optimizer)
    optimizer.clear_grad()
    return StepResult(total, grad_norm, skipped=not finite, measures=loss.measures())


def seed_step(seed: int, step: int) -> None:
    """Seed Paddle for one step.

    Whatever is random inside a step (dropout, noise) depends on the seed and the step alone, so a resumed run
    needs no saved generator state and draws the same numbers.
    """
    paddle.seed(int(np.random.SeedSequence((seed, step)).generate_state(1)[0]))


def _non_finite(step: int, loss: float, grad_norm: float, rate: float) -> NonFiniteLossError:
    what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient norm is {grad_norm}"
    return NonFiniteLossError(
        Problem(
            ("learning_rate",),
            f"{what} at step {step} (learning rate {rate:.3g})",
            "Lower learning_rate, lengthen the warmup, or look for broken weights in model_name_or_path.",
        )
    )
