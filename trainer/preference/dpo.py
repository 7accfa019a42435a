"""Losses of pairs of a chosen and a rejected response.

Each loss is a function of how much likelier the two responses are under the policy than under the reference:
`chosen` = log p(chosen) - log p_reference(chosen), and `rejected` likewise. Without a reference they are the
log-probabilities of the policy. They are sums over the tokens of a response, or means in the losses of
`AVERAGED`; with `normalize_logps` sums as if both responses had the mean length of the two.
"""

from collections.abc import Callable
from dataclasses import dataclass

import paddle
import paddle.nn.functional as functional
from paddle import Tensor

from trainer.config.fields.preference import AVERAGED, WITHOUT_REFERENCE, DpoFields

#: The largest log-probability whose odds float32 can tell: those of probability 1 are infinite.
LARGEST_LOG_PROBABILITY = -(2.0**-24)

PairLoss = Callable[[DpoFields, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class PairLogps:
    """Log-probabilities of pairs of responses, natural logarithm.

    Attributes:
        chosen: float32 `[pairs]`, summed over the tokens of the response.
        rejected: as `chosen`.
        chosen_tokens: float32 `[pairs]`, how many tokens were summed, at least 1.
        rejected_tokens: as `chosen_tokens`.
    """

    chosen: Tensor
    rejected: Tensor
    chosen_tokens: Tensor
    rejected_tokens: Tensor


def needs_reference(settings: DpoFields) -> bool:
    """Whether the loss compares the policy with a reference."""
    return not settings.reference_free and settings.loss_type not in WITHOUT_REFERENCE


def dpo_losses(settings: DpoFields, policy: PairLogps, reference: PairLogps | None) -> Tensor:
    """The preference loss of each pair, float32 `[pairs]`, before any weight of it.

    Args:
        reference: log-probabilities without gradients; None where `needs_reference` is false.
    """
    return LOSSES[settings.loss_type](settings, *_log_ratios(settings, policy, reference))


def dpo_rewards(settings: DpoFields, policy: PairLogps, reference: PairLogps | None) -> tuple[Tensor, Tensor]:
    """Implicit rewards of the chosen and of the rejected responses: beta times what the loss is made of.

    Both are float32 `[pairs]`, without gradients.
    """
    chosen, rejected = _log_ratios(settings, policy, reference)
    return settings.beta * chosen.detach(), settings.beta * rejected.detach()


def dpo_metrics(
    settings: DpoFields, policy: PairLogps, reference: PairLogps | None, losses: Tensor
) -> dict[str, tuple[float, float]]:
    """What is reported about pairs: name -> (sum, count), so that batches can be added up.

    The log-probabilities are those of the loss: per token in the losses of `AVERAGED`.
    """
    chosen, rejected = dpo_rewards(settings, policy, reference)
    logps_chosen, logps_rejected = _scale(settings, policy)
    values = {
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/accuracies": (chosen > rejected).astype("float32"),
        "rewards/margins": chosen - rejected,
        "logps/chosen": logps_chosen.detach(),
        "logps/rejected": logps_rejected.detach(),
        f"{settings.loss_type}_loss": losses.detach(),
    }
    sums = paddle.stack(list(values.values())).sum(axis=1).numpy()
    pairs = float(losses.shape[0])
    return {name: (float(total), pairs) for name, total in zip(values, sums, strict=True)}


def _log_ratios(settings: DpoFields, policy: PairLogps, reference: PairLogps | None) -> tuple[Tensor, Tensor]:
    chosen, rejected = _scale(settings, policy)
    if not needs_reference(settings):
        return chosen, rejected
    if reference is None:
        raise ValueError(f"loss_type {settings.loss_type}: expected log-probabilities of a reference")
    reference_chosen, reference_rejected = _scale(settings, reference)
    return chosen - reference_chosen.detach(), rejected - reference_rejected.detach()


def _scale(settings: DpoFields, logps: PairLogps) -> tuple[Tensor, Tensor]:
    if settings.loss_type in AVERAGED:
        return logps.chosen / logps.chosen_tokens, logps.rejected / logps.rejected_tokens
    if settings.normalize_logps:
        mean = (logps.chosen_tokens + logps.rejected_tokens) / 2
        return logps.chosen * (mean / logps.chosen_tokens), logps.rejected * (mean / logps.rejected_tokens)
    return logps.chosen, logps.rejected


def _sigmoid(settings: DpoFields, chosen: Tensor, rejected: Tensor) -> Tensor:
    """DPO (arXiv 2305.18290); label_smoothing takes that share of the pairs as judged the other way round."""
    return _smoothed(settings, settings.beta * (chosen - rejected))


def _hinge(settings: DpoFields, chosen: Tensor, rejected: Tensor) -> Tensor:
    """SLiC (arXiv 2305.10425) in the normalized form of RSO (arXiv 2309.06657)."""
    return functional.relu(1.0 - settings.beta * (chosen - rejected))


def _ipo(settings: DpoFields, chosen: Tensor, rejected: Tensor) -> Tensor:
    """IPO (arXiv 2310.12036), per token as its authors advise."""
    return (chosen - rejected - _half_inverse(settings)) ** 2


def _kto_pair(settings: DpoFields, chosen: Tensor, rejected: Tensor) -> Tensor:
    """KTO (arXiv 2402.01306) of pairs: the responses of the other side of the batch estimate the KL terms.

    The mean of the terms of the two responses of a pair. Gradients go through the KL terms, as in PaddleNLP.
    """
    kl_chosen, kl_rejected = functional.relu(chosen.mean()), functional.relu(rejected.mean())
    of_chosen = functional.sigmoid(settings.beta * (kl_rejected - chosen))
    of_rejected = functional.sigmoid(settings.beta * (rejected - kl_chosen))
    return (of_chosen + of_rejected) / 2


def _sppo_hard(settings: DpoFields, chosen: Tensor, rejected: Tensor) -> Tensor:
    """SPPO (arXiv 2405.00675) where the chosen response always wins."""
    target = _half_inverse(settings)
    return (chosen - target) ** 2 + (rejected + target) ** 2


def _nca_pair(settings: DpoFields, chosen: Tensor, rejected: Tensor) -> Tensor:
    """NCA (arXiv 2402.05369) of two responses."""
    chosen, rejected = settings.beta * chosen, settings.beta * rejected
    noise = functional.log_sigmoid(-chosen) + functional.log_sigmoid(-rejected)
    return -functional.log_sigmoid(chosen) - noise / 2


def _dpop(settings: DpoFields, chosen: Tensor, rejected: Tensor) -> Tensor:
    """DPO-Positive (arXiv 2402.13228), the penalty added to the loss as PaddleNLP does.

    The paper subtracts the penalty from the margin, inside the logarithm and times beta.
    """
    penalty = settings.dpop_lambda * functional.relu(-chosen)
    return penalty - functional.log_sigmoid(settings.beta * (chosen - rejected))


def _simpo(settings: DpoFields, chosen: Tensor, rejected: Tensor) -> Tensor:
    """SimPO (arXiv 2405.14734): the margin has to exceed simpo_gamma."""
    return _smoothed(settings, settings.beta * (chosen - rejected) - settings.simpo_gamma)


def _odds_ratio(settings: DpoFields, chosen: Tensor, rejected: Tensor) -> Tensor:
    """The odds ratio loss of ORPO (arXiv 2403.07691)."""
    return -functional.log_sigmoid(_log_odds(chosen) - _log_odds(rejected))


def _smoothed(settings: DpoFields, margin: Tensor) -> Tensor:
    loss = -functional.log_sigmoid(margin)
    if settings.label_smoothing == 0:
        return loss
    swapped = -functional.log_sigmoid(-margin)
    return (1 - settings.label_smoothing) * loss + settings.label_smoothing * swapped


def _half_inverse(settings: DpoFields) -> float:
    return 1 / (2 * settings.beta)


def _log_odds(log_probability: Tensor) -> Tensor:
    log_probability = log_probability.clip(max=LARGEST_LOG_PROBABILITY)
    return log_probability - paddle.log(-paddle.expm1(log_probability))


LOSSES: dict[str, PairLoss] = {
    "sigmoid": _sigmoid,
    "hinge": _hinge,
    "ipo": _ipo,
    "kto_pair": _kto_pair,
    "sppo_hard": _sppo_hard,
    "nca_pair": _nca_pair,
    "dpop": _dpop,
    "simpo": _simpo,
    "or": _odds_ratio,
    "orpo": _odds_ratio,
}
