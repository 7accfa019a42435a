"""Log-probabilities of labels are those of a float64 softmax, and so are their gradients."""

import numpy as np
import paddle
import pytest

from trainer.ops import linear_cross_entropy
from trainer.ops.linear_log_probabilities import linear_log_probabilities

WIDTH, VOCABULARY = 8, 40


def drawn(tokens: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(tokens)
    hidden = generator.normal(size=(tokens, WIDTH)).astype(np.float32) * scale
    weight = generator.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    labels = generator.integers(0, VOCABULARY, tokens)
    worth = generator.normal(size=tokens).astype(np.float32)
    return hidden, weight, labels, worth


def expected(hidden: np.ndarray, weight: np.ndarray, labels: np.ndarray) -> np.ndarray:
    logits = hidden.astype(np.float64) @ weight.astype(np.float64).T
    top = logits.max(axis=1, keepdims=True)
    normalizer = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    return np.where(labels >= 0, logits[np.arange(len(labels)), np.maximum(labels, 0)] - normalizer, 0.0)


def expected_gradients(
    hidden: np.ndarray, weight: np.ndarray, labels: np.ndarray, worth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    logits = hidden.astype(np.float64) @ weight.astype(np.float64).T
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    onehot = np.eye(VOCABULARY)[np.maximum(labels, 0)]
    grad = (onehot - shares) * np.where(labels >= 0, worth, 0.0)[:, None]
    return grad @ weight, grad.T @ hidden


def tensors(*arrays: np.ndarray) -> list[paddle.Tensor]:
    return [paddle.to_tensor(array, stop_gradient=array.dtype != np.float32) for array in arrays]


@pytest.mark.parametrize("ignored", [0, 3, 7])
def test_they_are_those_of_a_float64_softmax(ignored: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_cross_entropy, "ROWS_PER_CHUNK", 3)
    hidden, weight, labels, worth = drawn(7)
    labels[:ignored] = -100
    h, w, y = tensors(hidden, weight, labels)
    found = linear_log_probabilities(h, w, y)
    np.testing.assert_allclose(found.numpy(), expected(hidden, weight, labels), atol=1e-5)
    (found * paddle.to_tensor(worth)).sum().backward()
    grad_hidden, grad_weight = expected_gradients(hidden, weight, labels, worth)
    assert h.grad is not None
    np.testing.assert_allclose(h.grad.numpy(), grad_hidden, atol=1e-5)
    if ignored < len(labels):
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), grad_weight, atol=1e-5)


def test_the_most_unlikely_labels_keep_their_log_probability() -> None:
    hidden, weight, labels, _ = drawn(6, scale=100.0)
    assert expected(hidden, weight, labels).min() < -200
    found = linear_log_probabilities(*tensors(hidden, weight, labels))
    np.testing.assert_allclose(found.numpy(), expected(hidden, weight, labels), rtol=1e-5)


def test_a_frozen_projection_gets_no_gradient() -> None:
    hidden, weight, labels, _ = drawn(5)
    h, w, y = tensors(hidden, weight, labels)
    w.stop_gradient = True
    linear_log_probabilities(h, w, y).sum().backward()
    assert h.grad is not None
    assert w.grad is None


def test_what_is_not_a_number_is_not_hidden() -> None:
    hidden, weight, labels, _ = drawn(5)
    hidden[2, 1] = np.nan
    assert np.isnan(linear_log_probabilities(*tensors(hidden, weight, labels)).numpy()).any()
