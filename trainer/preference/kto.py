"""The loss of responses judged one by one: Kahneman-Tversky optimization (arXiv 2402.01306).

All log-probabilities are sums over the tokens of a response, natural logarithm, float32 `[examples]`.
"""

import paddle
import paddle.nn.functional as functional
from paddle import Tensor

from trainer.config.fields.preference import KtoFields


def kl_estimate(policy: Tensor, reference: Tensor) -> Tensor:
    """How far the policy is from the reference: the mean log ratio of mismatched responses, at least 0.

    Args:
        policy: log-probabilities `[responses]` of responses that belong to other prompts.
        reference: as `policy`.

    Returns:
        float32 scalar without gradients; 0 when there is no response at all.
    """
    if policy.shape[0] == 0:
        return paddle.zeros([], "float32")
    return functional.relu((policy.detach() - reference.detach()).mean())


def kto_losses(
    settings: KtoFields, policy: Tensor, reference: Tensor, desirable: Tensor, kl: Tensor
) -> Tensor:
    """The loss of each response, float32 `[examples]`, with the weight of its class.

    Args:
        policy: log-probabilities `[examples]`.
        reference: as `policy`, without gradients.
        desirable: bool `[examples]`, how each response was judged.
        kl: scalar without gradients, from `kl_estimate`.
    """
    lead = settings.beta * (policy - reference.detach() - kl)
    good = settings.desirable_weight * functional.sigmoid(-lead)
    bad = settings.undesirable_weight * functional.sigmoid(lead)
    return paddle.where(desirable, good, bad)


def kto_metrics(
    settings: KtoFields, policy: Tensor, reference: Tensor, desirable: Tensor, kl: Tensor
) -> dict[str, tuple[float, float]]:
    """What is reported about responses: name -> (sum, count), so that batches can be added up.

    Chosen means desirable and rejected undesirable; a class without responses has sum and count 0.
    """
    logps = policy.detach()
    rewards = settings.beta * (logps - reference.detach())
    good = desirable.astype("float32")
    terms = {
        "rewards/chosen": rewards * good,
        "rewards/rejected": rewards * (1.0 - good),
        "logps/chosen": logps * good,
        "logps/rejected": logps * (1.0 - good),
    }
    sums = paddle.stack([*terms.values(), good]).sum(axis=1).numpy()
    chosen = float(sums[-1])
    counts = (chosen, policy.shape[0] - chosen) * 2
    metrics = {name: (float(sums[place]), counts[place]) for place, name in enumerate(terms)}
    return {**metrics, "kl": (float(kl), 1.0)}
