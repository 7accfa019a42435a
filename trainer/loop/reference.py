"""The reference policy of preference training: what the policy is held to, without gradients or dropout.

With LoRA it is the policy with its adapter switched off, so there is no second model. In full training it is
a frozen copy, or log-probabilities that were computed once (`trainer.loop.reference_cache`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import paddle
from paddle import Tensor

from trainer.data.preference_batches import PreferenceBatch
from trainer.models import save_model
from trainer.models.base import CausalLM

#: Folder of a checkpoint that holds a reference which has followed the policy.
REFERENCE_FOLDER = "reference"


class Reference(Protocol):
    """Judges responses."""

    def log_probabilities(self, batch: PreferenceBatch) -> Tensor:
        """Summed log-probabilities of all responses of a batch, float32 `[responses]`, without gradients."""
        ...


class AdapterOff:
    """The policy without its adapter."""

    def __init__(self, policy: CausalLM) -> None:
        self._policy = policy

    def log_probabilities(self, batch: PreferenceBatch) -> Tensor:
        adapter: Any = self._policy.adapter
        with adapter.disabled():
            return quiet_log_probabilities(self._policy, batch)


class FrozenModel:
    """A model of its own."""

    def __init__(self, model: CausalLM) -> None:
        self.model = model
        for parameter in model.parameters():
            parameter.stop_gradient = True

    def log_probabilities(self, batch: PreferenceBatch) -> Tensor:
        return quiet_log_probabilities(self.model, batch)

    def save(self, directory: Path) -> None:
        """Write the model to its folder in a checkpoint."""
        save_model(self.model, directory / REFERENCE_FOLDER)

    @paddle.no_grad()
    def follow(self, policy: CausalLM) -> None:
        """Take the policy's present weights."""
        theirs = policy.parameter_names()
        for name, weight in self.model.parameter_names().items():
            paddle.assign(theirs[name].parameter.astype(weight.parameter.dtype), weight.parameter)


def log_probabilities(model: CausalLM, batch: PreferenceBatch) -> Tensor:
    """Summed log-probabilities of all responses of a batch, float32 `[responses]`; differentiable."""
    return model.log_probabilities(
        paddle.to_tensor(batch.input_ids),
        paddle.to_tensor(batch.labels),
        paddle.to_tensor(batch.responses),
        len(batch.response_tokens),
        position_ids=paddle.to_tensor(batch.position_ids),
        attention_mask=paddle.to_tensor(batch.documents),
        branches=paddle.to_tensor(batch.branches),
    )


def quiet_log_probabilities(model: CausalLM, batch: PreferenceBatch) -> Tensor:
    """The same without gradients and without dropout."""
    with paddle.no_grad(), _evaluating(model):
        return log_probabilities(model, batch)


@contextmanager
def _evaluating(model: CausalLM) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        if training:
            model.train()
