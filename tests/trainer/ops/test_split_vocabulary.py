"""Losses and log-probabilities over ranks that have some rows of the weight each, against the formulas."""

from typing import Any

import numpy as np
import paddle
import pytest

from tests.ranks import run_ranks
from tests.trainer.ops import naive
from tests.trainer.ops.checks import arrays
from trainer.ops import linear_cross_entropy
from trainer.ops.split_vocabulary import (
    VocabularyPart,
    split_cross_entropy,
    split_log_probabilities,
    split_logits,
)
from trainer.parallel.layout import start
from trainer.parallel.topology import Topology

RANKS, VOCABULARY, WIDTH = 3, 10, 4
LABELS = np.array([3, -100, 0, 9, -100, 2, 2])


def part_of_rank() -> VocabularyPart:
    layout = start(Topology(tensor=RANKS), 0)
    rows = -(-VOCABULARY // RANKS)
    first = layout.tensor_rank * rows
    return VocabularyPart(first, min(rows, VOCABULARY - first), rows, VOCABULARY, layout.tensor_group)


def own_rows(weight: np.ndarray, part: VocabularyPart) -> np.ndarray:
    """The rank's rows, and zeros after the last ones."""
    padded = np.zeros((part.rows * RANKS, weight.shape[1]), np.float32)
    padded[: part.whole] = weight
    return padded[part.first : part.first + part.rows]


def computed(
    hidden: np.ndarray, weight: np.ndarray, labels: np.ndarray, chunk: int, frozen: tuple[bool, bool]
) -> dict[str, Any]:
    """What a rank gets, and the gradients of the loss and of a sum of log-probabilities."""
    linear_cross_entropy.ROWS_PER_CHUNK = chunk
    part = part_of_rank()
    targets = paddle.to_tensor(labels)
    found: dict[str, Any] = {"rows": (part.first, part.tokens)}
    for name in ("loss", "log-probabilities", "logits"):
        h, w = (paddle.to_tensor(x.astype(np.float32)) for x in (hidden, own_rows(weight, part)))
        h.stop_gradient, w.stop_gradient = frozen
        if name == "loss":
            out = split_cross_entropy(h, w, targets, part).sum
            (out * 0.5).backward()
        elif name == "logits":
            out = split_logits(h, w, part)
            (out * out).sum().backward()
        else:
            out = split_log_probabilities(h, w, targets, part)
            (out * paddle.arange(1.0, 1.0 + len(labels))).sum().backward()
        found[name] = out.numpy(), *(None if x.grad is None else x.grad.numpy() for x in (h, w))
    with paddle.no_grad():
        total = split_cross_entropy(h, w, targets, part)
    found["metrics"] = float(total.sum), total.tokens, total.correct
    return found


def inputs() -> list[np.ndarray]:
    return arrays((len(LABELS), WIDTH), (VOCABULARY, WIDTH))


def token_log_probabilities(hidden: np.ndarray, weight: np.ndarray) -> np.ndarray:
    chances = naive.softmax(hidden @ weight.T)
    return np.where(LABELS < 0, 0.0, np.log(chances[np.arange(len(LABELS)), np.maximum(LABELS, 0)]))


@pytest.mark.parametrize("chunk", [512, 2])
def test_values_and_gradients_follow_the_formulas(chunk: int):
    hidden, weight = inputs()
    logits = hidden @ weight.T
    once, weights = np.array(0.5), np.arange(1.0, 1.0 + len(LABELS))
    formulas = {
        "loss": (lambda h, w: np.array(-token_log_probabilities(h, w).sum()), once),
        "log-probabilities": (token_log_probabilities, weights),
        "logits": (lambda h, w: h @ w.T, 2 * logits),
    }
    ranks = run_ranks(RANKS, computed, hidden, weight, LABELS, chunk, (False, False))
    for name, (formula, out) in formulas.items():
        slopes = [naive.gradient(formula, [hidden, weight], which, out) for which in (0, 1)]
        for found in ranks:
            value, of_hidden, of_weight = found[name]
            np.testing.assert_allclose(value, formula(hidden, weight), rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(of_hidden, slopes[0], rtol=1e-4, atol=1e-4, err_msg=name)
            first, tokens = found["rows"]
            np.testing.assert_allclose(of_weight[:tokens], slopes[1][first : first + tokens], 1e-4, 1e-4)
            assert not of_weight[tokens:].any()
    best = logits.argmax(-1)
    correct = int((best == LABELS).sum())
    for found in ranks:
        total, tokens, right = found["metrics"]
        assert total == pytest.approx(-token_log_probabilities(hidden, weight).sum(), rel=1e-5)
        assert (tokens, right) == (5, correct)


@pytest.mark.parametrize("frozen", [(True, False), (False, True)])
def test_what_is_frozen_gets_no_gradient(frozen: tuple[bool, bool]):
    for found in run_ranks(RANKS, computed, *inputs(), LABELS, 512, frozen):
        for name in ("loss", "log-probabilities"):
            assert tuple(slope is None for slope in found[name][1:]) == frozen


def test_an_impossible_label_has_its_large_loss_and_the_first_of_equals_is_the_most_likely():
    hidden, weight = np.full((1, 1), 300.0), np.full((VOCABULARY, 1), 1.0)
    weight[9] = -1.0
    for found in run_ranks(RANKS, computed, hidden, weight, np.array([9]), 512, (False, False)):
        assert found["loss"][0] == pytest.approx(600.0 + np.log(9.0))
        assert found["log-probabilities"][0] == pytest.approx(-600.0 - np.log(9.0))
    for label in (0, 5):
        ranks = run_ranks(RANKS, computed, hidden, weight, np.array([label]), 512, (False, False))
        assert [found["metrics"][2] for found in ranks] == [int(label == 0)] * RANKS


def test_a_batch_without_labels_has_no_loss_and_no_gradient():
    labels = np.full(len(LABELS), -100)
    for found in run_ranks(RANKS, computed, *inputs(), labels, 512, (False, False)):
        assert float(found["loss"][0]) == 0.0
        assert not found["loss"][1].any()
        assert not found["log-probabilities"][0].any()
        assert found["metrics"] == (0.0, 0, 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_on_one_rank_is_not_finite_on_any(value: float):
    hidden, weight = inputs()
    weight[8, 1] = value
    for found in run_ranks(RANKS, computed, hidden, weight, LABELS, 512, (False, False)):
        assert not np.isfinite(found["loss"][0])
        assert not np.isfinite(found["metrics"][0])
        assert not np.isfinite(found["log-probabilities"][0]).all()
