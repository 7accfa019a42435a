"""Losses of pairs (numbers of TRL: tests/golden/make_preference.py)."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import Tensor

from tests.trainer.ops.checks import gradient
from trainer.config.fields.preference import DpoFields
from trainer.preference.dpo import (
    AVERAGED,
    LOSSES,
    PairLogps,
    dpo_losses,
    dpo_metrics,
    dpo_rewards,
    needs_reference,
)

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "preference.json").read_text(encoding="utf-8")
)
BETAS = (0.05, 0.1, 0.5)

#: Log-probabilities of chosen and rejected responses at which exponentials end.
EXTREMES = (0.0, -1e-9, -1e-4, -88.0, -1e4)


def tensor(values: Any) -> Tensor:
    return paddle.to_tensor(np.asarray(values, dtype=np.float32))


def logps(
    chosen: Any, rejected: Any, chosen_tokens: Any = None, rejected_tokens: Any = None, *, leaf: bool = False
) -> PairLogps:
    """One token each unless said otherwise. `leaf`: gradients are wanted."""
    ones = np.ones(len(chosen))
    sides = (tensor(chosen), tensor(rejected))
    for side in sides:
        side.stop_gradient = not leaf
    counts = (chosen_tokens, rejected_tokens)
    return PairLogps(*sides, *(tensor(ones if count is None else count) for count in counts))


def golden_pairs() -> tuple[PairLogps, PairLogps]:
    pairs = GOLDEN["pairs"]
    tokens = pairs["tokens"]
    return logps(*pairs["policy"], *tokens, leaf=True), logps(*pairs["reference"], *tokens)


def gradients(losses: Tensor, policy: PairLogps) -> list[np.ndarray]:
    losses.sum().backward()
    return [gradient(side) for side in (policy.chosen, policy.rejected)]


@pytest.mark.parametrize(
    "case", GOLDEN["dpo"], ids=lambda case: "-".join(map(str, case["settings"].values()))
)
def test_losses_rewards_and_gradients_are_those_of_trl(case: dict[str, Any]) -> None:
    settings = DpoFields(**case["settings"])
    policy, reference = golden_pairs()
    losses = dpo_losses(settings, policy, reference if needs_reference(settings) else None)
    np.testing.assert_allclose(losses.numpy(), case["losses"], rtol=1e-5, atol=1e-5)

    expected = np.array(case["rewards"])
    if settings.loss_type == "ipo":  # TRL's are of sums even where its loss is of means
        expected = expected / np.array(GOLDEN["pairs"]["tokens"])
    found = dpo_rewards(settings, policy, reference)
    np.testing.assert_allclose(np.stack([one.numpy() for one in found]), expected, rtol=1e-5, atol=1e-5)

    np.testing.assert_allclose(gradients(losses, policy), case["gradients"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss_type", ["sigmoid", "dpop", "kto_pair"])
def test_normalized_pairs_are_those_of_responses_of_one_length(loss_type: Any) -> None:
    settings = DpoFields(loss_type=loss_type, normalize_logps=True)
    policy, reference = (
        logps([-6.0, -3.0], [-9.0, -2.0], [2, 3], [6, 1]),
        logps([-5.0, -4.0], [-8.0, -3.0], [2, 3], [6, 1]),
    )
    # The mean lengths are 4 and 2.
    same = logps([-12.0, -2.0], [-6.0, -4.0]), logps([-10.0, -8 / 3], [-16 / 3, -6.0])
    expected = dpo_losses(DpoFields(loss_type=loss_type), *same)
    np.testing.assert_allclose(dpo_losses(settings, policy, reference).numpy(), expected.numpy(), rtol=1e-6)
    plain = dpo_losses(DpoFields(loss_type=loss_type), policy, reference)
    assert not np.allclose(plain.numpy(), expected.numpy())


def test_golden_cases_cover_every_loss_that_trl_has() -> None:
    assert {case["settings"]["loss_type"] for case in GOLDEN["dpo"]} == LOSSES.keys() - {
        "kto_pair",
        "dpop",
        "orpo",
    }


def sigma(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def ratios() -> tuple[np.ndarray, np.ndarray]:
    pairs = GOLDEN["pairs"]
    chosen, rejected = np.array(pairs["policy"]) - np.array(pairs["reference"])
    return chosen, rejected


@pytest.mark.parametrize("beta", BETAS)
def test_kto_pair_is_the_mean_of_its_two_terms(beta: float) -> None:
    """Equations 6 to 8 of arXiv 2402.01306; the other responses of the batch estimate the KL terms."""
    chosen, rejected = ratios()
    kl_chosen, kl_rejected = max(0.0, chosen.mean()), max(0.0, rejected.mean())
    terms = [1 - sigma(beta * (chosen - kl_rejected)), 1 - sigma(beta * (kl_chosen - rejected))]
    found = dpo_losses(DpoFields(loss_type="kto_pair", beta=beta), *golden_pairs())
    np.testing.assert_allclose(found.numpy(), np.mean(terms, axis=0), rtol=1e-5, atol=1e-6)


def test_gradients_go_through_the_kl_terms_of_kto_pair() -> None:
    settings = DpoFields(loss_type="kto_pair", beta=0.1)
    policy = logps([-3.0, -5.0], [-4.0, -2.0], leaf=True)
    reference = logps([-6.0, -7.0], [-6.0, -5.0])
    of_chosen, of_rejected = gradients(dpo_losses(settings, policy, reference), policy)
    step = 1e-3
    for pair, side in itertools.product(range(2), ("chosen", "rejected")):
        totals = []
        for sign in (-1, 1):
            values = {"chosen": [-3.0, -5.0], "rejected": [-4.0, -2.0]}
            values[side][pair] += sign * step
            losses = dpo_losses(settings, logps(values["chosen"], values["rejected"]), reference)
            totals.append(float(losses.astype("float64").sum()))
        slope = (totals[1] - totals[0]) / (2 * step)
        found = (of_chosen if side == "chosen" else of_rejected)[pair]
        assert found == pytest.approx(slope, abs=1e-4)


@pytest.mark.parametrize("beta", BETAS)
def test_dpop_adds_its_penalty_outside_the_logarithm(beta: float) -> None:
    """As PaddleNLP does; equation 3 of arXiv 2402.13228 has it inside, times beta."""
    chosen, rejected = ratios()
    expected = -np.log(sigma(beta * (chosen - rejected))) + 7.0 * np.maximum(0, -chosen)
    settings = DpoFields(loss_type="dpop", beta=beta, dpop_lambda=7.0)
    found = dpo_losses(settings, *golden_pairs())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_orpo_and_or_are_the_same_preference_loss() -> None:
    policy, _ = golden_pairs()
    found, expected = (dpo_losses(DpoFields(loss_type=name), policy, None) for name in ("orpo", "or"))
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.parametrize("beta", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
def test_a_policy_equal_to_the_reference_has_a_sigmoid_loss_of_ln_2(
    beta: float, label_smoothing: float
) -> None:
    policy, _ = golden_pairs()
    settings = DpoFields(beta=beta, label_smoothing=label_smoothing)
    np.testing.assert_allclose(dpo_losses(settings, policy, policy).numpy(), math.log(2), rtol=1e-6)


@pytest.mark.parametrize("loss_type", LOSSES)
def test_losses_and_gradients_are_finite_at_extreme_log_probabilities(loss_type: str) -> None:
    settings = DpoFields.model_validate({"loss_type": loss_type})
    chosen, rejected = zip(*itertools.product(EXTREMES, EXTREMES), strict=True)
    for expected in EXTREMES:
        policy = logps(chosen, rejected, leaf=True)
        same = [expected] * len(chosen)
        losses = dpo_losses(settings, policy, logps(same, same) if needs_reference(settings) else None)
        assert np.isfinite(losses.numpy()).all()
        assert np.isfinite(gradients(losses, policy)).all()


@pytest.mark.parametrize("loss_type", [name for name in LOSSES if name not in {"sppo_hard", "hinge"}])
def test_a_step_along_the_gradient_makes_the_chosen_response_likelier(loss_type: str) -> None:
    policy = logps([-4.0], [-3.0], leaf=True)
    settings = DpoFields.model_validate({"loss_type": loss_type})
    reference = logps([-3.5], [-3.5]) if needs_reference(settings) else None
    of_chosen, of_rejected = gradients(dpo_losses(settings, policy, reference), policy)
    assert of_chosen < 0 < of_rejected


@pytest.mark.parametrize("loss_type", ["sigmoid", "hinge", "ipo"])
def test_without_a_reference_its_log_probabilities_are_0(loss_type: str) -> None:
    free = DpoFields.model_validate({"loss_type": loss_type, "reference_free": True})
    held = DpoFields.model_validate({"loss_type": loss_type})
    policy, _ = golden_pairs()
    nothing = np.zeros(len(policy.chosen))
    zeros = logps(nothing, nothing, policy.chosen_tokens, policy.rejected_tokens)
    found, expected = dpo_losses(free, policy, None), dpo_losses(held, policy, zeros)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    assert not needs_reference(free)


def test_a_reference_that_is_missing_is_told() -> None:
    policy, _ = golden_pairs()
    with pytest.raises(ValueError, match="loss_type sigmoid: expected log-probabilities of a reference"):
        dpo_losses(DpoFields(), policy, None)


@pytest.mark.parametrize("loss_type", sorted(LOSSES))
def test_only_averaged_losses_depend_on_the_number_of_tokens(loss_type: str) -> None:
    settings = DpoFields.model_validate({"loss_type": loss_type})
    counts = ([1.0], [1.0]), ([2.0], [5.0])
    found = [
        dpo_losses(settings, logps([-4.0], [-3.0], *count), logps([-3.0], [-3.0], *count)).item()
        for count in counts
    ]
    assert (found[0] != found[1]) == (loss_type in AVERAGED)


def test_metrics_are_sums_that_add_up_over_batches() -> None:
    settings = DpoFields(beta=0.5)
    policy = logps([-3.0, -4.0, -2.0], [-3.0, -2.0, -5.0], leaf=True)
    reference = logps([-4.0, -3.0, -2.0], [-4.0, -4.0, -4.0])
    losses = dpo_losses(settings, policy, reference)
    metrics = dpo_metrics(settings, policy, reference, losses)
    assert metrics == {
        "rewards/chosen": (pytest.approx(0.0), 3),
        "rewards/rejected": (pytest.approx(1.0), 3),
        "rewards/accuracies": (1.0, 3),
        "rewards/margins": (pytest.approx(-1.0), 3),
        "logps/chosen": (pytest.approx(-9.0), 3),
        "logps/rejected": (pytest.approx(-10.0), 3),
        "sigmoid_loss": (pytest.approx(losses.sum().item()), 3),
    }
