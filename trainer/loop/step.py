"""One optimizer step.

The step minimises the sum of the losses of its label tokens divided by their number, counted over all its
micro-batches. The number is known before the first forward pass, so each micro-batch's loss sum is divided by
it and gradients simply add up: 2 x 2 examples are 1 x 4 examples, whatever their lengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import paddle

from trainer.config.problems import Problem, TrainingError
from trainer.data.batches import Batch
from trainer.loop.neftune import EmbeddingNoise
from trainer.loop.optimizer import clip_gradients
from trainer.loop.precision import FullPrecision
from trainer.models.base import CausalLM
from trainer.ops.linear_cross_entropy import TokenLoss


class NonFiniteLossError(TrainingError):
    """The loss or its gradient became NaN or infinite."""

    kind = "nan_loss"


@dataclass(frozen=True)
class StepResult:
    """What one step did: its loss per label token, the gradients' global norm before clipping.

    `skipped`: fp16 gradients overflowed, so the weights did not change.
    """

    loss: float
    grad_norm: float
    skipped: bool


def train_step(
    model: CausalLM,
    optimizer: paddle.optimizer.AdamW,
    batches: Sequence[Batch],
    *,
    step: int,
    rate: float,
    max_grad_norm: float,
    precision: FullPrecision,
    noise: EmbeddingNoise | None = None,
) -> StepResult:
    """Take optimizer step number `step` (from 1) over `batches` at learning rate `rate`.

    Raises:
        NonFiniteLossError: the loss or the gradient is not finite; the weights are left as they were.
    """
    label_tokens = sum(batch.label_tokens for batch in batches)
    total = 0.0
    for batch in batches:
        if noise is not None:
            noise.expect(batch)
        with precision.autocast():
            loss = batch_loss(model, batch).sum / label_tokens
        precision.backward(loss)
        total += float(loss)
    precision.unscale(optimizer)
    grad_norm = clip_gradients(model.parameters(), max_grad_norm)
    finite = math.isfinite(total) and math.isfinite(grad_norm)
    if not finite and not precision.may_skip:
        optimizer.clear_grad()
        raise _non_finite(step, total, grad_norm, rate)
    optimizer.set_lr(rate)
    precision.update(optimizer)
    optimizer.clear_grad()
    return StepResult(total, grad_norm, skipped=not finite)


def batch_loss(model: CausalLM, batch: Batch) -> TokenLoss:
    """The summed token losses of a batch."""
    return model.loss(
        paddle.to_tensor(batch.input_ids),
        paddle.to_tensor(batch.labels),
        position_ids=paddle.to_tensor(batch.position_ids),
        attention_mask=paddle.to_tensor(batch.documents),
    )


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
