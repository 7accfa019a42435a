"""What a step of preference training minimises: means over the pairs, or the judged responses, of the step.

Everything that a loss takes from more than one example (the KL terms of kto and of kto_pair) is taken from
the whole step, in passes without gradients that come first. So a step gives the same whatever its
micro-batches are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import paddle
from paddle import Tensor

from trainer.config.schema import DpoConfig, KtoConfig
from trainer.data.preference_batches import PreferenceBatch
from trainer.loop.objective import Measures, StepLoss
from trainer.loop.precision import FullPrecision
from trainer.loop.reference import FrozenModel, Reference, log_probabilities, quiet_log_probabilities
from trainer.models.base import CausalLM
from trainer.preference.dpo import PairLogps, dpo_losses, dpo_metrics
from trainer.preference.kto import kl_estimate, kto_losses, kto_metrics

#: The loss types in which a pair's loss depends on the other pairs.
OF_ALL_PAIRS = frozenset({"kto_pair"})


class _Fixed:
    """An objective that no step changes."""

    def stepped(self, model: CausalLM, step: int) -> None:
        """Nothing changes from step to step."""

    def save(self, directory: Path) -> None:
        """Nothing is needed."""


class Pairs(_Fixed):
    """Objective of task dpo: pref_loss_ratio x the mean preference loss of the pairs + sft_loss_ratio x the
    mean loss of the label tokens of the chosen responses.

    Args:
        reference: None where the loss needs none.
    """

    def __init__(self, config: DpoConfig, reference: Reference | None) -> None:
        self.config = config
        self.reference = reference

    def begin(
        self, model: CausalLM, batches: Sequence[PreferenceBatch], precision: FullPrecision
    ) -> StepLoss:
        if self.config.loss_type in OF_ALL_PAIRS:
            return _JointPairsStep(self, model, batches, precision)
        return _PairsStep(self, model, batches)

    def referred(self, batch: PreferenceBatch) -> PairLogps | None:
        """What the reference says about a batch."""
        return None if self.reference is None else pair_logps(self.reference.log_probabilities(batch), batch)

    def total(self, policy: PairLogps, losses: Tensor, pairs: float, chosen_tokens: float) -> Tensor:
        """The share of some pairs in the loss of `pairs` pairs with `chosen_tokens` label tokens."""
        loss = losses.sum() * (self.config.pref_loss_ratio / pairs)
        if self.config.sft_loss_ratio:
            loss = loss - policy.chosen.sum() * (self.config.sft_loss_ratio / chosen_tokens)
        return loss


class _PairsStep:
    def __init__(self, objective: Pairs, model: CausalLM, batches: Sequence[PreferenceBatch]) -> None:
        self._objective = objective
        self._model = model
        self._batches = batches
        self._pairs = sum(batch.examples for batch in batches)
        self._chosen_tokens = sum(int(batch.response_tokens[0::2].sum()) for batch in batches)
        self._measures: list[Measures] = []

    def part(self, number: int) -> Tensor:
        batch, objective = self._batches[number], self._objective
        reference = objective.referred(batch)
        policy = pair_logps(log_probabilities(self._model, batch), batch)
        losses = dpo_losses(objective.config, policy, reference)
        self._measures.append(pair_measures(objective.config, policy, reference, losses))
        return objective.total(policy, losses, self._pairs, self._chosen_tokens)

    def measures(self) -> Measures:
        return added(self._measures)


class _JointPairsStep:
    """A loss of all pairs together.

    A first pass gives all log-probabilities, from them the loss and its gradient in each. In the second pass
    every micro-batch sends the gradients of its own log-probabilities back through the model.
    """

    def __init__(
        self,
        objective: Pairs,
        model: CausalLM,
        batches: Sequence[PreferenceBatch],
        precision: FullPrecision,
    ) -> None:
        self._model = model
        self._batches = batches
        with precision.autocast():
            sums = [quiet_log_probabilities(model, batch) for batch in batches]
            references = [objective.referred(batch) for batch in batches]
        for leaf in sums:
            leaf.stop_gradient = False
        policy = joined([pair_logps(leaf, batch) for leaf, batch in zip(sums, batches, strict=True)])
        known = [reference for reference in references if reference is not None]
        reference = joined(known) if known else None
        losses = dpo_losses(objective.config, policy, reference)
        tokens = float(policy.chosen_tokens.sum())
        loss = objective.total(policy, losses, losses.shape[0], tokens)
        self._gradients = paddle.grad(loss, sums)
        self._share = float(loss) / len(batches)
        self._measures = pair_measures(objective.config, policy, reference, losses)

    def part(self, number: int) -> Tensor:
        policy = log_probabilities(self._model, self._batches[number])
        return ((policy - policy.detach()) * self._gradients[number]).sum() + self._share

    def measures(self) -> Measures:
        return self._measures


class Judged(_Fixed):
    """Objective of task kto: the mean loss of the judged responses."""

    def __init__(self, config: KtoConfig, reference: Reference) -> None:
        self.config = config
        self.reference = reference

    def begin(
        self, model: CausalLM, batches: Sequence[PreferenceBatch], precision: FullPrecision
    ) -> StepLoss:
        return _JudgedStep(self, model, batches, precision)

    def mismatched(self, model: CausalLM, batches: Sequence[PreferenceBatch]) -> tuple[Tensor, Tensor]:
        """What the policy and the reference say about the mismatched responses, float32 `[examples]`."""
        others = [batch.mismatched for batch in batches if batch.mismatched is not None]
        policy = [quiet_log_probabilities(model, other) for other in others]
        reference = [self.reference.log_probabilities(other) for other in others]
        return paddle.concat(policy), paddle.concat(reference)


class _JudgedStep:
    def __init__(
        self,
        objective: Judged,
        model: CausalLM,
        batches: Sequence[PreferenceBatch],
        precision: FullPrecision,
    ) -> None:
        self._objective = objective
        self._model = model
        self._batches = batches
        self._examples = sum(batch.examples for batch in batches)
        with precision.autocast():
            self._kl = kl_estimate(*objective.mismatched(model, batches))
        self._measures: list[Measures] = []

    def part(self, number: int) -> Tensor:
        batch, config = self._batches[number], self._objective.config
        reference = self._objective.reference.log_probabilities(batch)
        policy = log_probabilities(self._model, batch)
        desirable = paddle.to_tensor(np.asarray(batch.desirable))
        losses = kto_losses(config, policy, reference, desirable, self._kl)
        self._measures.append(kto_metrics(config, policy, reference, desirable, self._kl))
        return losses.sum() / self._examples

    def measures(self) -> Measures:
        return added(self._measures)


class Following:
    """An objective whose reference takes the policy's weights every so many steps."""

    def __init__(self, objective: Pairs | Judged, reference: FrozenModel, every: int) -> None:
        self._objective = objective
        self._reference = reference
        self._every = every

    def begin(
        self, model: CausalLM, batches: Sequence[PreferenceBatch], precision: FullPrecision
    ) -> StepLoss:
        return self._objective.begin(model, batches, precision)

    def stepped(self, model: CausalLM, step: int) -> None:
        """Follow the policy when it is time."""
        if step % self._every == 0:
            self._reference.follow(model)

    def save(self, directory: Path) -> None:
        """The reference is no longer the model that the run began with."""
        self._reference.save(directory)


def pair_logps(sums: Tensor, batch: PreferenceBatch) -> PairLogps:
    """The log-probabilities of a batch of pairs, from those of its responses."""
    tokens = batch.response_tokens.astype(np.float32)
    counts = paddle.to_tensor(tokens[0::2]), paddle.to_tensor(tokens[1::2])
    return PairLogps(sums[0::2], sums[1::2], *counts)


def joined(parts: Sequence[PairLogps]) -> PairLogps:
    """The pairs of all parts, in order."""
    return PairLogps(
        chosen=paddle.concat([part.chosen for part in parts]),
        rejected=paddle.concat([part.rejected for part in parts]),
        chosen_tokens=paddle.concat([part.chosen_tokens for part in parts]),
        rejected_tokens=paddle.concat([part.rejected_tokens for part in parts]),
    )


def pair_measures(
    config: DpoConfig, policy: PairLogps, reference: PairLogps | None, losses: Tensor
) -> Measures:
    """What is reported about pairs; with sft_loss_ratio also the SFT loss, per label token."""
    measures = dpo_metrics(config, policy, reference, losses)
    if config.sft_loss_ratio:
        sft = -float(policy.chosen.detach().sum()), float(policy.chosen_tokens.sum())
        measures = {**measures, "sft_loss": sft}
    return measures


def added(measures: Sequence[Measures]) -> Measures:
    """Sums and counts of all of them together."""
    found: dict[str, tuple[float, float]] = {}
    for part in measures:
        for name, (total, count) in part.items():
            before = found.get(name, (0.0, 0.0))
            found[name] = before[0] + total, before[1] + count
    return found
