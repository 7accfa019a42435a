"""Fleet's split layers on CPU against the same layers in one piece, forward and backward."""

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as functional
import pytest
from paddle import Tensor
from paddle.distributed.fleet.layers.mpu import mp_layers, mp_ops

from tests.ranks import run_ranks
from trainer.parallel.layout import start
from trainer.parallel.topology import Topology

ROWS = (3, 5)
IGNORED = -100


def _full_tensors(ranks: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    vocabulary, width, inner = 16 * ranks, 8 * ranks, 12 * ranks
    shapes = {
        "embedding": (vocabulary, width),
        "up": (width, inner),
        "up_bias": (inner,),
        "down": (inner, width),
        "down_bias": (width,),
        "head": (width, vocabulary),
    }
    return {name: random.normal(0.0, 0.3, shape).astype("float32") for name, shape in shapes.items()}


def _batch(ranks: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    labels = random.integers(0, 16 * ranks, ROWS)
    labels[0, :2] = IGNORED
    return random.integers(0, 16 * ranks, ROWS), labels


def _split_network(ranks: int) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and this rank's gradients of embedding, column and row layer, and head, by Fleet's own layers."""
    rank = start(Topology(tensor=ranks), seed=1).rank
    full = _full_tensors(ranks)
    width, inner = full["up"].shape
    vocabulary = len(full["embedding"])
    embedding = mp_layers.VocabParallelEmbedding(vocabulary, width)
    up = mp_layers.ColumnParallelLinear(width, inner, has_bias=True, gather_output=False)
    down = mp_layers.RowParallelLinear(inner, width, has_bias=True, input_is_parallel=True)
    head = mp_layers.ColumnParallelLinear(width, vocabulary, has_bias=False, gather_output=False)
    parameters = {
        "embedding": embedding.weight,
        "up": up.weight,
        "up_bias": up.bias,
        "down": down.weight,
        "down_bias": down.bias,
        "head": head.weight,
    }
    for name, parameter in parameters.items():
        parameter.set_value(_part(name, full[name], rank, ranks))
    ids, labels = _batch(ranks)
    logits = head(down(functional.gelu(up(embedding(paddle.to_tensor(ids))))))
    losses = mp_layers.ParallelCrossEntropy()(logits, paddle.to_tensor(labels).unsqueeze(-1))
    losses.sum().backward()
    return float(losses.sum()), {name: parameter.grad.numpy() for name, parameter in parameters.items()}


def _whole_network(ranks: int) -> tuple[float, dict[str, np.ndarray]]:
    full = {
        name: paddle.to_tensor(value, stop_gradient=False) for name, value in _full_tensors(ranks).items()
    }
    ids, labels = _batch(ranks)
    hidden = functional.embedding(paddle.to_tensor(ids), full["embedding"])
    hidden = functional.gelu(hidden.matmul(full["up"]) + full["up_bias"])
    logits = (hidden.matmul(full["down"]) + full["down_bias"]).matmul(full["head"])
    target = paddle.to_tensor(labels).unsqueeze(-1)
    loss = functional.cross_entropy(logits, target, ignore_index=IGNORED, reduction="sum")
    loss.backward()
    return float(loss), {name: _gradient(tensor) for name, tensor in full.items()}


def _part(name: str, full: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    axes = {"embedding": 0, "up": 1, "up_bias": 0, "down": 0, "head": 1}
    return np.split(full, ranks, axes[name])[rank] if name in axes else full


def _gradient(tensor: Tensor) -> np.ndarray:
    assert tensor.grad is not None
    return tensor.grad.numpy()


def _concat_and_split(ranks: int) -> dict[str, np.ndarray]:
    layout = start(Topology(tensor=ranks), seed=1)
    x = paddle.arange(6, dtype="float32").reshape([2, 3]) + 10.0 * layout.rank
    x.stop_gradient = False
    concatenated: Any = mp_ops._c_concat(x, group=layout.tensor_group)
    weights = paddle.arange(6 * ranks, dtype="float32").reshape([2, 3 * ranks])
    (concatenated * weights).sum().backward()
    whole = paddle.arange(4 * ranks, dtype="float32").reshape([2, 2 * ranks])
    part: Any = mp_ops._c_split(whole, group=layout.tensor_group)
    identical = paddle.ones([2])
    identical.stop_gradient = False
    identity: Any = mp_ops._c_identity(identical, group=layout.tensor_group)
    (identity * (layout.rank + 1.0)).sum().backward()
    return {
        "concatenated": concatenated.numpy(),
        "gradient": _gradient(x),
        "part": part.numpy(),
        "identity": identity.numpy(),
        "identity_gradient": _gradient(identical),
    }


def _cross_entropy(dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Softmax, losses and gradient of this rank's half of logits as large as 300."""
    layout = start(Topology(tensor=2), seed=1)
    logits, labels = _large_logits()
    half = paddle.to_tensor(np.split(logits, 2, axis=-1)[layout.rank].astype(dtype), stop_gradient=False)
    outcome: Any = mp_ops._c_softmax_with_cross_entropy(
        half, paddle.to_tensor(labels), group=layout.tensor_group, return_softmax=True, ignore_index=IGNORED
    )
    loss, softmax = outcome
    (loss * paddle.to_tensor(_loss_weights().astype(dtype))).sum().backward()
    return softmax.numpy(), loss.numpy(), _gradient(half)


def _large_logits() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    labels = random.integers(0, 14, (6, 1))
    labels[2] = IGNORED
    return random.normal(0.0, 100.0, (6, 14)), labels


def _loss_weights() -> np.ndarray:
    return np.linspace(0.5, 2.0, 6).reshape(6, 1)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_split_network_has_the_loss_and_the_gradients_of_the_whole(ranks: int) -> None:
    loss, gradients = _whole_network(ranks)
    for rank, (split_loss, split_gradients) in enumerate(run_ranks(ranks, _split_network, ranks)):
        assert split_loss == pytest.approx(loss, rel=1e-6)
        for name, gradient in gradients.items():
            expected = _part(name, gradient, rank, ranks)
            np.testing.assert_allclose(split_gradients[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_parts_are_concatenated_and_split_along_the_last_axis_with_their_gradients() -> None:
    results = run_ranks(2, _concat_and_split, 2)
    base = np.arange(6.0).reshape(2, 3)
    weights = np.arange(12.0).reshape(2, 6)
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result["concatenated"], np.concatenate([base, base + 10], axis=1))
        np.testing.assert_array_equal(result["gradient"], np.split(weights, 2, axis=1)[rank])
        np.testing.assert_array_equal(result["part"], np.split(np.arange(8.0).reshape(2, 4), 2, axis=1)[rank])
        np.testing.assert_array_equal(result["identity"], np.ones(2))
        np.testing.assert_array_equal(result["identity_gradient"], np.full(2, 3.0))  # 1 + 2


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_cross_entropy_of_large_split_logits_is_that_of_the_definition(dtype: str, tolerance: float) -> None:
    logits, labels = _large_logits()
    if dtype == "float32":
        logits = logits.astype("float32").astype("float64")
    shifted = logits - logits.max(-1, keepdims=True)
    softmax = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    counted = labels != IGNORED
    index = np.where(counted, labels, 0)
    loss = (np.log(np.exp(shifted).sum(-1, keepdims=True)) - np.take_along_axis(shifted, index, -1)) * counted
    gradient = (softmax - (np.arange(14) == index)) * counted * _loss_weights()
    results = run_ranks(2, _cross_entropy, dtype)
    for rank, (split_softmax, split_loss, split_gradient) in enumerate(results):
        half = slice(7 * rank, 7 * rank + 7)
        np.testing.assert_allclose(split_softmax, softmax[:, half], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(split_loss, loss, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(split_gradient, gradient[:, half], rtol=tolerance, atol=tolerance)
