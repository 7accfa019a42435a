"""What a step of preference training minimises: means over the pairs, or the judged responses, of the step.

Everything that a loss takes from more than one example (the KL terms of kto and of kto_pair) is taken from
the whole step, in passes without gradients that come first. So a step gives the same whatever its
micro-batches are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import paddle
from paddle import Tensor

from trainer.config.schema import DpoConfig, KtoConfig
from trainer.data.preference_batches import PreferenceBatch
from trainer.loop.engine import Engine
from trainer.loop.objective import Measures, StepLoss
from trainer.loop.reference import REFERENCE_FOLDER, FrozenModel, Reference, log_probability_passes
from trainer.models.base import CausalLM
from trainer.preference.dpo import PairLogps, dpo_losses, dpo_metrics
from trainer.preference.kto import kl_estimate, kto_losses, kto_metrics

#: The loss types in which a pair's loss depends on the other pairs.
OF_ALL_PAIRS = frozenset({"kto_pair"})


class _Fixed:
    """An objective that no step changes."""

    def stepped(self, model: CausalLM, step: int) -> None:
        """Nothing changes from step to step."""

    def models(self) -> Mapping[str, CausalLM]:
        """None is needed."""
        return {}


class Pairs(_Fixed):
    """Objective of task dpo: pref_loss_ratio x the mean preference loss of the pairs + sft_loss_ratio x the
    mean loss of the label tokens of the chosen responses.

    Args:
        reference: None where the loss needs none.
    """

    def __init__(self, config: DpoConfig, reference: Reference | None) -> None:
        self.config = config
        self.reference = reference

    def begin(self, engine: Engine, batches: Sequence[PreferenceBatch]) -> StepLoss:
        references = self.referred(batches)
        if self.config.loss_type in OF_ALL_PAIRS:
            return _JointPairsStep(self, engine, batches, references)
        return _PairsStep(self, batches, references)

    def referred(self, batches: Sequence[PreferenceBatch]) -> list[PairLogps] | None:
        """What the reference says about each batch."""
        if self.reference is None:
            return None
        found = self.reference.log_probabilities(batches)
        return [pair_logps(sums, batch) for sums, batch in zip(found, batches, strict=True)]

    def total(self, policy: PairLogps, losses: Tensor, pairs: float, chosen_tokens: float) -> Tensor:
        """The share of some pairs in the loss of `pairs` pairs with `chosen_tokens` label tokens."""
        loss = losses.sum() * (self.config.pref_loss_ratio / pairs)
        if self.config.sft_loss_ratio:
            loss = loss - policy.chosen.sum() * (self.config.sft_loss_ratio / chosen_tokens)
        return loss


class _PairsStep:
    def __init__(
        self, objective: Pairs, batches: Sequence[PreferenceBatch], references: list[PairLogps] | None
    ) -> None:
        self.passes = log_probability_passes(batches)
        self._objective = objective
        self._batches = batches
        self._references = references
        self._pairs = sum(batch.examples for batch in batches)
        self._chosen_tokens = sum(int(batch.response_tokens[0::2].sum()) for batch in batches)

    def share(self, number: int, outcome: Tensor) -> Tensor:
        policy, _, losses = self._judged(number, outcome)
        return self._objective.total(policy, losses, self._pairs, self._chosen_tokens)

    def measures(self, outcomes: Sequence[Tensor]) -> Measures:
        config = self._objective.config
        judged = (self._judged(number, outcome) for number, outcome in enumerate(outcomes))
        return added([pair_measures(config, *of_batch) for of_batch in judged])

    def _judged(self, number: int, outcome: Tensor) -> tuple[PairLogps, PairLogps | None, Tensor]:
        """Policy, reference and losses of a micro-batch."""
        policy = pair_logps(outcome, self._batches[number])
        reference = None if self._references is None else self._references[number]
        return policy, reference, dpo_losses(self._objective.config, policy, reference)


class _JointPairsStep:
    """A loss of all pairs together.

    A first pass gives all log-probabilities, from them the loss and its gradient in each. In the second pass
    every micro-batch sends the gradients of its own log-probabilities back through the model.
    """

    def __init__(
        self,
        objective: Pairs,
        engine: Engine,
        batches: Sequence[PreferenceBatch],
        references: list[PairLogps] | None,
    ) -> None:
        self.passes = log_probability_passes(batches)
        sums = engine.outcomes(self.passes)
        for leaf in sums:
            leaf.stop_gradient = False
        policy = joined([pair_logps(leaf, batch) for leaf, batch in zip(sums, batches, strict=True)])
        reference = None if references is None else joined(references)
        losses = dpo_losses(objective.config, policy, reference)
        tokens = float(policy.chosen_tokens.sum())
        loss = objective.total(policy, losses, losses.shape[0], tokens)
        self._gradients = paddle.grad(loss, sums)
        self._share = float(loss) / len(batches)
        self._measures = pair_measures(objective.config, policy, reference, losses)

    def share(self, number: int, outcome: Tensor) -> Tensor:
        return ((outcome - outcome.detach()) * self._gradients[number]).sum() + self._share

    def measures(self, outcomes: Sequence[Tensor]) -> Measures:
        return self._measures


class Judged(_Fixed):
    """Objective of task kto: the mean loss of the judged responses."""

    def __init__(self, config: KtoConfig, reference: Reference) -> None:
        self.config = config
        self.reference = reference

    def begin(self, engine: Engine, batches: Sequence[PreferenceBatch]) -> StepLoss:
        kl = kl_estimate(*self.mismatched(engine, batches))
        return _JudgedStep(self.config, batches, self.reference.log_probabilities(batches), kl)

    def mismatched(self, engine: Engine, batches: Sequence[PreferenceBatch]) -> tuple[Tensor, Tensor]:
        """What the policy and the reference say about the mismatched responses, float32 `[examples]`."""
        others = [batch.mismatched for batch in batches if batch.mismatched is not None]
        policy = engine.outcomes(log_probability_passes(others))
        return paddle.concat(policy), paddle.concat(self.reference.log_probabilities(others))


class _JudgedStep:
    def __init__(
        self,
        config: KtoConfig,
        batches: Sequence[PreferenceBatch],
        references: Sequence[Tensor],
        kl: Tensor,
    ) -> None:
        self.passes = log_probability_passes(batches)
        self._config = config
        self._references = references
        self._kl = kl
        self._desirable = [paddle.to_tensor(np.asarray(batch.desirable)) for batch in batches]
        self._examples = sum(batch.examples for batch in batches)

    def share(self, number: int, outcome: Tensor) -> Tensor:
        given = self._references[number], self._desirable[number], self._kl
        return kto_losses(self._config, outcome, *given).sum() / self._examples

    def measures(self, outcomes: Sequence[Tensor]) -> Measures:
        judged = zip(outcomes, self._references, self._desirable, strict=True)
        return added([kto_metrics(self._config, *given, self._kl) for given in judged])


class Following:
    """An objective whose reference takes the policy's weights every so many steps."""

    def __init__(self, objective: Pairs | Judged, reference: FrozenModel, every: int) -> None:
        self._objective = objective
        self._reference = reference
        self._every = every

    def begin(self, engine: Engine, batches: Sequence[PreferenceBatch]) -> StepLoss:
        return self._objective.begin(engine, batches)

    def stepped(self, model: CausalLM, step: int) -> None:
        """Follow the policy when it is time."""
        if step % self._every == 0:
            self._reference.follow(model)

    def models(self) -> Mapping[str, CausalLM]:
        """The reference is no longer the model that the run began with."""
        return {REFERENCE_FOLDER: self._reference.model}


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
