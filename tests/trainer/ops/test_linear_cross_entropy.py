import numpy as np
import paddle
import pytest

from tests.trainer.ops import naive
from tests.trainer.ops.checks import arrays, assert_deterministic, assert_frozen, assert_same, gradient
from trainer.ops import linear_cross_entropy as module
from trainer.ops.linear_cross_entropy import linear_cross_entropy

LABELS = np.array([3, -100, 0, 6, -100, 2, 2])


def total(hidden: paddle.Tensor, weight: paddle.Tensor, labels: np.ndarray = LABELS) -> paddle.Tensor:
    return linear_cross_entropy(hidden, weight, paddle.to_tensor(labels)).sum


@pytest.mark.parametrize("rows", [512, 2])
def test_it_follows_the_formula_and_its_gradients(rows: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "ROWS_PER_CHUNK", rows)
    inputs = arrays((len(LABELS), 4), (7, 4))
    assert_same(total, lambda h, w: naive.cross_entropy_sum(h, w, LABELS), inputs)


def test_gradients_are_scaled_by_what_the_sum_is_multiplied_with():
    hidden, weight = (
        paddle.to_tensor(x.astype("float32"), stop_gradient=False) for x in arrays((7, 4), (7, 4))
    )
    total(hidden, weight).backward()
    whole = gradient(hidden)
    hidden.clear_gradient()
    (total(hidden, weight) / 5).backward()
    np.testing.assert_allclose(gradient(hidden), whole / 5, rtol=1e-6)


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_is_frozen_gets_no_gradient(frozen: int):
    assert_frozen(total, arrays((7, 4), (7, 4)), frozen)


def test_tokens_and_correct_ones_are_counted():
    weight = np.eye(7, 4) * 10
    hidden = paddle.to_tensor(np.eye(7, 4)[[3, 1, 1, 2, 0, 2, 2]].astype("float32"))
    with paddle.no_grad():
        loss = linear_cross_entropy(
            hidden, paddle.to_tensor(weight.astype("float32")), paddle.to_tensor(LABELS)
        )
    assert (loss.tokens, loss.correct) == (5, 3)


def test_a_batch_without_labels_has_no_loss_and_no_gradient():
    hidden, weight = (
        paddle.to_tensor(x.astype("float32"), stop_gradient=False) for x in arrays((3, 4), (7, 4))
    )
    loss = linear_cross_entropy(hidden, weight, paddle.full([3], -100, "int64"))
    loss.sum.backward()
    assert (loss.tokens, float(loss.sum)) == (0, 0.0)
    assert not gradient(hidden).any()


def test_an_impossible_label_has_its_large_loss():
    hidden, weight = paddle.full([1, 1], 300.0), paddle.to_tensor([[1.0], [-1.0]])
    hidden.stop_gradient = False
    assert float(total(hidden, weight, np.array([1]))) == pytest.approx(600.0)


def test_the_same_inputs_give_the_same_bits():
    labels = np.random.default_rng(0).integers(-1, 300, 700)
    assert_deterministic(lambda h, w: total(h, w, labels), arrays((700, 48), (300, 48)))


@pytest.mark.parametrize("broken", [0, 1])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("recorded", [True, False])
def test_what_is_not_finite_is_not_hidden_by_softmax(broken: int, value: float, recorded: bool):
    inputs = arrays((len(LABELS), 4), (64, 4))
    inputs[broken][0, 1] = value
    hidden, weight = (paddle.to_tensor(x.astype("float32"), stop_gradient=not recorded) for x in inputs)
    with paddle.set_grad_enabled(recorded):
        assert not np.isfinite(float(total(hidden, weight)))
