"""How gradients change the weights."""

from __future__ import annotations

import math
from typing import Protocol

import paddle

from trainer.loop.optimizer import clip_gradients
from trainer.loop.precision import FullPrecision
from trainer.models.base import CausalLM
from trainer.parallel.clip import GradientsNotFinite


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


class SingleUpdate:
    """AdamW in one process."""

    def __init__(
        self,
        model: CausalLM,
        optimizer: paddle.optimizer.AdamW,
        precision: FullPrecision,
        max_grad_norm: float,
    ) -> None:
        self.optimizer = optimizer
        self._model = model
        self._precision = precision
        self._max_grad_norm = max_grad_norm

    @property
    def loss_scale(self) -> float:
        return self._precision.loss_scale

    @property
    def may_skip(self) -> bool:
        return self._precision.may_skip

    def step(self, rate: float) -> float:
        self._precision.unscale(self.optimizer)
        norm = clip_gradients(self._model.parameters(), self._max_grad_norm)
        if not math.isfinite(norm):
            raise GradientsNotFinite(norm)
        self.optimizer.set_lr(rate)
        self._precision.update(self.optimizer)
        self.optimizer.clear_grad()
        return norm

    def skip(self) -> None:
        self._precision.update(self.optimizer)
        self.optimizer.clear_grad()
