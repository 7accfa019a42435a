"""The reference policy of preference training: what the policy is held to, without gradients or dropout.

With LoRA it is the policy with its adapter switched off, so there is no second model. In full training it is
a frozen copy, or log-probabilities that were computed once (`trainer.loop.reference_cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import paddle
from paddle import Tensor

from trainer.data.preference_batches import PreferenceBatch
from trainer.loop.engine import Engine
from trainer.models.base import CausalLM
from trainer.models.passes import LogProbabilityPass, Passes
from trainer.ops.packing import Packing

#: Folder of a checkpoint that holds a reference which has followed the policy.
REFERENCE_FOLDER = "reference"


class Reference(Protocol):
    """Judges responses."""

    def log_probabilities(self, batches: Sequence[PreferenceBatch]) -> list[Tensor]:
        """Summed log-probabilities of all responses of each batch, float32 `[responses]`, without gradients.

        Over many processes all of them ask about the same batches.
        """
        ...


class AdapterOff:
    """The policy without its adapter."""

    def __init__(self, policy: Engine) -> None:
        self._policy = policy

    def log_probabilities(self, batches: Sequence[PreferenceBatch]) -> list[Tensor]:
        adapter: Any = self._policy.model.adapter
        with adapter.disabled():
            return self._policy.outcomes(log_probability_passes(batches))


class FrozenModel:
    """A model of its own."""

    def __init__(self, engine: Engine) -> None:
        self.model = engine.model
        self._engine = engine
        for parameter in self.model.parameters():
            parameter.stop_gradient = True

    def log_probabilities(self, batches: Sequence[PreferenceBatch]) -> list[Tensor]:
        return self._engine.outcomes(log_probability_passes(batches))

    @paddle.no_grad()
    def follow(self, policy: CausalLM) -> None:
        """Take the policy's present weights."""
        theirs = policy.parameter_names()
        for name, weight in self.model.parameter_names().items():
            paddle.assign(theirs[name].parameter.astype(weight.parameter.dtype), weight.parameter)


def log_probability_passes(batches: Sequence[PreferenceBatch]) -> Passes:
    """Give the summed log-probability of each response of each batch."""
    sizes = [len(batch.response_tokens) for batch in batches]
    return Passes(sizes, lambda number: log_probability_pass(batches[number]))


def log_probability_pass(batch: PreferenceBatch) -> LogProbabilityPass:
    """Gives the summed log-probability of each response of a batch."""
    ids, labels, responses, positions, documents, branches = (
        paddle.to_tensor(part)
        for part in (
            *(batch.input_ids, batch.labels, batch.responses),
            *(batch.position_ids, batch.documents, batch.branches),
        )
    )
    packing = Packing.of(ids, positions, documents, branches)
    count = len(batch.response_tokens)
    return LogProbabilityPass(
        packing.pack(ids), packing, packing.pack(labels), packing.pack(responses), count
    )
