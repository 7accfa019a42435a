"""What a step minimises.

An objective makes one `StepLoss` for each optimizer step. The step's loss is a mean over something that is
counted over all its micro-batches (label tokens, pairs of responses), and the count is known before the first
forward pass: so each micro-batch's share is divided by it, and shares and their gradients simply add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import paddle
from paddle import Tensor

from trainer.data.batches import Batch
from trainer.loop.engine import Engine
from trainer.models.base import CausalLM
from trainer.models.passes import LossPass, MetricsPass, Passes
from trainer.ops.packing import Packing

#: Sum and count of what is measured besides the loss, by name.
Measures = Mapping[str, tuple[float, float]]


class StepLoss(Protocol):
    """The loss of one optimizer step."""

    @property
    def passes(self) -> Passes:
        """One for each micro-batch."""
        ...

    def share(self, number: int, outcome: Tensor) -> Tensor:
        """What micro-batch `number`, whose outcome this is, adds to the loss: a float32 scalar,
        differentiable.
        """
        ...

    def measures(self, outcomes: Sequence[Tensor]) -> Measures:
        """What else the outcomes of all micro-batches tell."""
        ...


class Objective(Protocol):
    """Makes the losses of steps."""

    def begin(self, engine: Engine, batches: Sequence[Any]) -> StepLoss:
        """The loss of the step over these micro-batches, which are all there are in any process."""
        ...

    def stepped(self, model: CausalLM, step: int) -> None:
        """Step number `step` (from 1) has changed the model."""
        ...

    def models(self) -> Mapping[str, CausalLM]:
        """The models besides the trained one that a checkpoint needs, by their folder in it."""
        ...


class Supervised:
    """The mean loss of the label tokens."""

    def begin(self, engine: Engine, batches: Sequence[Batch]) -> StepLoss:
        return _SupervisedStep(batches)

    def stepped(self, model: CausalLM, step: int) -> None:
        """Nothing changes from step to step."""

    def models(self) -> Mapping[str, CausalLM]:
        """None is needed."""
        return {}


class _SupervisedStep:
    def __init__(self, batches: Sequence[Batch]) -> None:
        self.passes = Passes([1] * len(batches), lambda number: loss_pass(batches[number]))
        self._tokens = sum(batch.label_tokens for batch in batches)

    def share(self, number: int, outcome: Tensor) -> Tensor:
        return outcome.sum() / self._tokens

    def measures(self, outcomes: Sequence[Tensor]) -> Measures:
        return {}


def loss_pass(batch: Batch) -> LossPass:
    """Gives the summed token losses of a batch."""
    return LossPass(*_packed(batch))


def metrics_passes(batches: Sequence[Batch]) -> Passes:
    """Give the summed token losses of each batch and the number of tokens that are predicted right."""
    return Passes([2] * len(batches), lambda number: MetricsPass(*_packed(batches[number])))


def _packed(batch: Batch) -> tuple[Tensor, Packing, Tensor]:
    ids, labels, positions, documents = (
        paddle.to_tensor(part)
        for part in (batch.input_ids, batch.labels, batch.position_ids, batch.documents)
    )
    packing = Packing.of(ids, positions, documents)
    return packing.pack(ids), packing, packing.pack(labels)
