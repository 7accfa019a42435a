"""An optimizer step: gradients are brought together and clipped, and change the weights.

`trainer.parallel.make_update` gives the updater of a layout. Fleet takes the mean of the gradients of all
shares of the data, so losses are multiplied by the number of shares (see the engines).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.distributed.fleet.utils import mix_precision_utils
from paddle.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients

from trainer.ahead import done_ahead
from trainer.loop.precision import FullPrecision
from trainer.models.base import CausalLM
from trainer.models.passes import Pass
from trainer.models.weights import WeightMap
from trainer.parallel.clip import GlobalNormClip
from trainer.parallel.layout import Layout
from trainer.parallel.sharded_state import (
    Copies,
    Held,
    Kind,
    Part,
    Span,
    create_state,
    held_state,
    held_weights,
)

if TYPE_CHECKING:
    from trainer.models.weights import Weight

#: Gives what a checkpoint has for a span of a weight's state, as `Held.put` takes it; None where it has none.
ReadState = Callable[["Weight", Kind, Span | None], np.ndarray | None]


class Updater:
    """AdamW on what this process holds; where there is data parallelism, on the mean of all gradients.

    This one is for layouts without sharding; subclasses are for the others.

    Args:
        model: what of the model is here.
        optimizer: over its trainable parameters, with `clip`.
        clip: clips all gradients.
        precision: its loss scale is followed.
        layout: the place of this process.
        copies: who else holds what is here.

    Attributes:
        trainable: the parameters that change.
        all_must_run: whether every process has to run the model when one does.
    """

    all_must_run = False

    def __init__(
        self,
        model: CausalLM,
        optimizer: paddle.optimizer.AdamW,
        clip: GlobalNormClip,
        precision: FullPrecision,
        layout: Layout,
        copies: Copies,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.clip = clip
        self.layout = layout
        self.trainable = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
        self._precision = precision
        self._copies = copies

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by before its gradients are taken."""
        return self._precision.loss_scale

    @property
    def may_skip(self) -> bool:
        """Whether a step whose gradients are not finite is skipped; otherwise it is an error."""
        return self._precision.may_skip

    def step(self, rate: float) -> float:
        """Change the weights at learning rate `rate` and forget the gradients.

        Returns:
            The norm of all gradients, before clipping.

        Raises:
            GradientsNotFinite: it is not finite; no weight changed, in any process. Then call `skip`.
        """
        self.clip.loss_scale = self.loss_scale
        self.optimizer.set_lr(rate)
        self._change_weights()
        self._precision.note(overflowed=False)
        self._clear()
        return self.clip.norm

    def skip(self) -> None:
        """Forget the gradients, which were not finite."""
        self._precision.note(overflowed=True)
        self._clear()

    def run(self, work: Pass) -> Tensor:
        """The outcome of a pass whose gradients are for the next step."""
        return self.model.run(work)

    def whole(self, parameter: Tensor) -> Tensor:
        """All of a parameter that is here; all processes of a sharding group ask, in the same order."""
        return parameter

    def weights(self, weights: WeightMap | None = None) -> Iterator[Held]:
        """What is here of `weights`; by default of all that training changes."""
        return held_weights(weights or self.model.trained_weights(), self._cut(), self._copies)

    def state(self) -> Iterator[Held]:
        """What is here of the optimizer's state; nothing before the first step."""
        return held_state(self.optimizer, self.model.trained_weights(), self._parts(), self._copies)

    def load_state(self, read: ReadState) -> None:
        """Replace the state by what `read` gives for every part of it that is here; threads call it."""
        create_state(self.optimizer, self._parts())
        found = done_ahead(lambda held: read(held.weight, held.kind, held.span), self.state())
        for held, array in found:
            if array is not None:
                held.put(array)

    def _change_weights(self) -> None:
        if self.layout.dp_group is not None:
            fill_missing_gradients(self.trainable)
            fused_allreduce_gradients(self.trainable, self.layout.hcg)
        self.optimizer.step()

    def _clear(self) -> None:
        self.optimizer.clear_grad()

    def _parts(self) -> Iterable[Part]:
        """The parameters, or parts of them, that the optimizer changes here."""
        return [Part(parameter, parameter) for parameter in self.trainable]

    def _cut(self) -> Iterable[Part]:
        """The parts of weights, where this process does not hold the whole ones."""
        return ()


def fill_missing_gradients(parameters: Sequence[Any]) -> None:
    """Give a gradient of zero to those that have none, so that all processes have the same to sum up."""
    for parameter in parameters:
        if hasattr(parameter, "main_grad"):
            if parameter.main_grad is None:
                parameter.main_grad = paddle.zeros_like(parameter, dtype="float32")
        elif parameter.grad is None:
            parameter.grad = paddle.zeros_like(parameter)


def with_main_gradients(model: CausalLM, optimizer: paddle.optimizer.AdamW) -> Any:
    """Let gradients add up in a float32 `main_grad` of each parameter; the returned optimizer takes them."""
    trainable, frozen = nn.ParameterList(), []
    for parameter in model.parameters():
        trainable.append(parameter) if not parameter.stop_gradient else frozen.append(parameter)
    # The dtype is only checked.
    mix_precision_utils.MixPrecisionLayer(trainable, dtype="bfloat16")
    for parameter in frozen:
        parameter.main_grad = None  # Fleet expects the attribute of all parameters or of none
    return mix_precision_utils.MixPrecisionOptimizer(optimizer)
