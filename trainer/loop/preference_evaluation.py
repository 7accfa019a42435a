"""Evaluation in preference training: the task's loss and rewards over the dev data, as one step over it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import paddle

from trainer.data.preference_batches import PreferenceBatch, PreferenceCollator, PreferenceRow
from trainer.loop.engine import Engine, groups
from trainer.loop.evaluation import StopQuestion
from trainer.loop.preference import Judged, Pairs, joined, pair_logps, pair_measures
from trainer.loop.reference import log_probability_passes
from trainer.loop.report import means
from trainer.preference.dpo import PairLogps, dpo_losses
from trainer.preference.kto import kl_estimate, kto_losses, kto_metrics

Metrics = dict[str, float]


@dataclass(frozen=True)
class PreferenceEvaluation:
    """Measures what the objective would be on the dev data, as one step over all of it.

    Gives ``eval_loss`` and the measures of the task, such as ``eval_rewards/accuracies``.

    Attributes:
        rows: the dev data.
        collate: makes batches of `batch_size` rows.
        objective: of the training.
    """

    rows: Sequence[PreferenceRow]
    collate: PreferenceCollator
    batch_size: int
    objective: Pairs | Judged

    @paddle.no_grad()
    def measure(self, engine: Engine, should_stop: StopQuestion) -> Metrics | None:
        """See `trainer.loop.evaluation.Evaluation`."""
        started = time.monotonic()
        objective = self.objective
        if isinstance(objective, Pairs):
            metrics = _of_pairs(objective, engine, self._batches(), should_stop)
        else:
            metrics = _of_judged(objective, engine, self._batches(), should_stop)
        if metrics is None:
            return None
        seconds = time.monotonic() - started
        examples = sum(len(row.parts) for row in self.rows)
        return {f"eval_{name}": value for name, value in metrics.items()} | {
            "eval_runtime": seconds,
            "eval_samples_per_second": examples / seconds,
            "eval_steps_per_second": math.ceil(len(self.rows) / self.batch_size) / seconds,
        }

    def _batches(self) -> Iterator[PreferenceBatch]:
        for start in range(0, len(self.rows), self.batch_size):
            yield self.collate(self.rows[start : start + self.batch_size])


def _of_pairs(
    objective: Pairs, engine: Engine, batches: Iterator[PreferenceBatch], should_stop: Callable[[], bool]
) -> Metrics | None:
    policies: list[PairLogps] = []
    references: list[PairLogps] = []
    for group in groups(batches, engine.at_once):
        if should_stop():
            return None
        found = engine.outcomes(log_probability_passes(group))
        policies += [pair_logps(sums, batch) for sums, batch in zip(found, group, strict=True)]
        references += objective.referred(group) or []
    policy, reference = joined(policies), joined(references) if references else None
    losses = dpo_losses(objective.config, policy, reference)
    loss = objective.total(policy, losses, losses.shape[0], float(policy.chosen_tokens.sum()))
    return {"loss": float(loss), **means(pair_measures(objective.config, policy, reference, losses))}


def _of_judged(
    objective: Judged, engine: Engine, batches: Iterator[PreferenceBatch], should_stop: Callable[[], bool]
) -> Metrics | None:
    policies, references, judged, others = [], [], [], []
    for group in groups(batches, engine.at_once):
        if should_stop():
            return None
        policies += engine.outcomes(log_probability_passes(group))
        references += objective.reference.log_probabilities(group)
        judged += [batch.desirable for batch in group]
        others.append(objective.mismatched(engine, group))
    policy, reference = paddle.concat(policies), paddle.concat(references)
    desirable = paddle.to_tensor(np.concatenate(judged))
    kl = kl_estimate(*(paddle.concat(list(side)) for side in zip(*others, strict=True)))
    losses = kto_losses(objective.config, policy, reference, desirable, kl)
    measures = kto_metrics(objective.config, policy, reference, desirable, kl)
    return {"loss": float(losses.mean()), **means(measures)}
