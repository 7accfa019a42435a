"""One optimizer step: gradients of all micro-batches add up, so 2 x 2 examples are 1 x 4 examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import paddle

from trainer.config.problems import Problem, TrainingError
from trainer.loop.engine import Engine
from trainer.loop.objective import Measures, Objective
from trainer.parallel.clip import GradientsNotFinite


class NonFiniteLossError(TrainingError):
    """The loss or its gradient became NaN or infinite."""

    kind = "nan_loss"


class Update(Protocol):
    """Takes the gradients of a step, wherever they are."""

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by before its gradients are taken."""
        ...

    @property
    def may_skip(self) -> bool:
        """Whether a step whose gradients are not finite is skipped; otherwise it is an error."""
        ...

    def step(self, rate: float) -> float:
        """Change the weights at learning rate `rate` and forget the gradients; returns the gradients' global
        norm before clipping.

        Raises:
            GradientsNotFinite: no weight was changed; in all processes alike.
        """
        ...

    def skip(self) -> None:
        """Forget the gradients, which were not finite."""
        ...


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
    engine: Engine,
    update: Update,
    objective: Objective,
    batches: Sequence[Any],
    *,
    step: int,
    rate: float,
) -> StepResult:
    """Take optimizer step number `step` (from 1) over the micro-batches `batches` at learning rate `rate`.

    Over many processes all of them are given all micro-batches.

    Raises:
        NonFiniteLossError: the loss or the gradient is not finite; the weights are left as they were.
    """
    loss = objective.begin(engine, batches)
    outcomes = engine.train(loss.passes, loss.share, update.loss_scale)
    with paddle.no_grad():
        total = sum(float(loss.share(number, outcome)) for number, outcome in enumerate(outcomes))
        measures = loss.measures(outcomes)
    grad_norm = _change_weights(update, total, rate)
    if math.isfinite(total) and math.isfinite(grad_norm):
        return StepResult(total, grad_norm, skipped=False, measures=measures)
    update.skip()
    if not update.may_skip:
        raise _non_finite(step, total, grad_norm, rate)
    return StepResult(total, grad_norm, skipped=True, measures=measures)


def _change_weights(update: Update, loss: float, rate: float) -> float:
    """The gradients' norm; when it or the loss is not finite, the weights stay."""
    if not math.isfinite(loss):
        return math.nan
    try:
        return update.step(rate)
    except GradientsNotFinite as error:
        return error.norm


def _non_finite(step: int, loss: float, grad_norm: float, rate: float) -> NonFiniteLossError:
    what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient norm is {grad_norm}"
    return NonFiniteLossError(
        Problem(
            ("learning_rate",),
            f"{what} at step {step} (learning rate {rate:.3g})",
            "Lower learning_rate, lengthen the warmup, or look for broken weights in model_name_or_path.",
        )
    )
