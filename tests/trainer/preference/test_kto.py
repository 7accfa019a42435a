"""The loss of judged responses (numbers of TRL: tests/golden/make_preference.py)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import Tensor

from tests.trainer.ops.checks import gradient
from trainer.config.fields.preference import KtoFields
from trainer.preference.kto import kl_estimate, kto_losses, kto_metrics

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "preference.json").read_text(encoding="utf-8")
)
EXTREMES = (0.0, -1e-9, -88.0, -1e4)


def tensor(values: Any) -> Tensor:
    return paddle.to_tensor(np.asarray(values, dtype=np.float32))


def leaf(values: Any) -> Tensor:
    found = tensor(values)
    found.stop_gradient = False
    return found


@pytest.mark.parametrize("case", GOLDEN["kto"])
def test_loss_gradient_and_metrics_are_those_of_trl(case: dict[str, Any]) -> None:
    settings = KtoFields(**case["settings"])
    policy, reference = leaf(case["policy"]), tensor(case["reference"])
    desirable = paddle.to_tensor(case["desirable"])
    kl = kl_estimate(tensor(case["mismatched"]), tensor(case["mismatched_reference"]))
    loss = kto_losses(settings, policy, reference, desirable, kl).mean()
    loss.backward()
    assert loss.item() == pytest.approx(case["loss"], rel=1e-5)
    np.testing.assert_allclose(gradient(policy), case["gradient"], rtol=1e-4, atol=1e-7)

    metrics = kto_metrics(settings, policy, reference, desirable, kl)
    means = {name: total / count for name, (total, count) in metrics.items() if count}
    expected = {name: value for name, value in case["metrics"].items() if name != "rewards/margins"}
    assert means == pytest.approx(expected, rel=1e-5)


def test_golden_cases_have_mixed_classes_one_class_and_a_kl_term_below_0() -> None:
    assert {len(set(case["desirable"])) for case in GOLDEN["kto"]} == {1, 2}
    differences = [
        np.mean(np.subtract(case["mismatched"], case["mismatched_reference"])) for case in GOLDEN["kto"]
    ]
    assert min(differences) < 0 < max(differences)


def test_the_kl_term_is_a_mean_at_least_0_without_gradients() -> None:
    policy = leaf([-3.0, -5.0])
    above, below = (kl_estimate(policy, tensor(reference)) for reference in ([-4.0, -7.0], [-2.0, -2.0]))
    assert (above.item(), below.item()) == (1.5, 0.0)
    assert above.stop_gradient


def test_the_kl_term_of_no_responses_is_0() -> None:
    assert kl_estimate(tensor([]), tensor([])).item() == 0


def test_weights_belong_to_their_class() -> None:
    settings = KtoFields(desirable_weight=3.0, undesirable_weight=5.0)
    same = tensor([-2.0, -2.0])
    losses = kto_losses(settings, same, same, paddle.to_tensor([True, False]), tensor(0.0))
    assert losses.tolist() == [1.5, 2.5]


def test_desirable_responses_are_made_likelier_and_others_less_likely() -> None:
    policy = leaf([-4.0, -4.0])
    desirable = paddle.to_tensor([True, False])
    kto_losses(KtoFields(), policy, tensor([-4.0, -4.0]), desirable, tensor(0.3)).sum().backward()
    of_desirable, of_undesirable = gradient(policy)
    assert of_desirable < 0 < of_undesirable


@pytest.mark.parametrize("judged", [True, False])
def test_an_empty_class_counts_nothing_and_is_never_nan(judged: bool) -> None:
    policy, reference = leaf([-4.0, -6.0]), tensor([-5.0, -6.0])
    desirable, kl = paddle.to_tensor([judged, judged]), tensor(0.0)
    losses = kto_losses(KtoFields(), policy, reference, desirable, kl)
    losses.mean().backward()
    assert np.isfinite(losses.numpy()).all()
    assert np.isfinite(gradient(policy)).all()
    metrics = kto_metrics(KtoFields(), policy, reference, desirable, kl)
    empty, full = ("rejected", "chosen") if judged else ("chosen", "rejected")
    assert metrics[f"rewards/{empty}"] == metrics[f"logps/{empty}"] == (0.0, 0.0)
    assert metrics[f"rewards/{full}"] == (pytest.approx(0.1), 2.0)
    assert metrics[f"logps/{full}"] == (pytest.approx(-10.0), 2.0)


@pytest.mark.parametrize("judged", [True, False])
def test_losses_and_gradients_are_finite_at_extreme_log_probabilities(judged: bool) -> None:
    for expected in EXTREMES:
        policy = leaf(EXTREMES)
        reference = tensor([expected] * len(EXTREMES))
        desirable = paddle.to_tensor([judged] * len(EXTREMES))
        kl = kl_estimate(policy, reference)
        losses = kto_losses(KtoFields(), policy, reference, desirable, kl)
        losses.sum().backward()
        assert np.isfinite(losses.numpy()).all()
        assert np.isfinite(gradient(policy)).all()
