"""What a step minimises.

An objective makes one `StepLoss` for each optimizer step. The step's loss is a mean over something that is
counted over all its micro-batches (label tokens, pairs of responses), and the count is known before the first
forward pass: so each micro-batch's part is divided by it, and parts and their gradients simply add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import paddle

from trainer.data.batches import Batch
from trainer.loop.precision import FullPrecision
from trainer.models.base import CausalLM
from trainer.ops.linear_cross_entropy import TokenLoss

#: Sum and count of what is measured besides the loss, by name.
Measures = Mapping[str, tuple[float, float]]


class StepLoss(Protocol):
    """The loss of one optimizer step."""

    def part(self, number: int) -> paddle.Tensor:
        """The share of micro-batch `number`, a float32 scalar; differentiable. Called once for each."""
        ...

    def measures(self) -> Measures:
        """What was measured on the way; asked after the last part."""
        ...


class Objective(Protocol):
    """Makes the losses of steps."""

    def begin(self, model: CausalLM, batches: Sequence[Any], precision: FullPrecision) -> StepLoss:
        """The loss of the step over these micro-batches."""
        ...

    def stepped(self, model: CausalLM, step: int) -> None:
        """Step number `step` (from 1) has changed the model."""
        ...

    def save(self, directory: Path) -> None:
        """Add to a checkpoint what the objective needs to go on from it."""
        ...


class Supervised:
    """The mean loss of the label tokens."""

    def begin(self, model: CausalLM, batches: Sequence[Batch], precision: FullPrecision) -> StepLoss:
        return _SupervisedStep(model, batches)

    def stepped(self, model: CausalLM, step: int) -> None:
        """Nothing changes from step to step."""

    def save(self, directory: Path) -> None:
        """Nothing is needed."""


class _SupervisedStep:
    def __init__(self, model: CausalLM, batches: Sequence[Batch]) -> None:
        self._model = model
        self._batches = batches
        self._tokens = sum(batch.label_tokens for batch in batches)

    def part(self, number: int) -> paddle.Tensor:
        return batch_loss(self._model, self._batches[number]).sum / self._tokens

    def measures(self) -> Measures:
        return {}


def batch_loss(model: CausalLM, batch: Batch) -> TokenLoss:
    """The summed token losses of a batch."""
    return model.loss(
        paddle.to_tensor(batch.input_ids),
        paddle.to_tensor(batch.labels),
        position_ids=paddle.to_tensor(batch.position_ids),
        attention_mask=paddle.to_tensor(batch.documents),
    )
