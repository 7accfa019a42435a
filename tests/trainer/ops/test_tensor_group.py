"""What goes between ranks, and its gradients, against sums and parts of the whole."""

from typing import Any

import numpy as np
import paddle
import pytest

from tests.ranks import run_ranks
from trainer.ops import tensor_group
from trainer.parallel.layout import start
from trainer.parallel.topology import Topology

RANKS = 2
# x and the gradient of the result, of each rank.
X = np.arange(16, dtype=np.float32).reshape(RANKS, 4, 2)
SAME = X[:1].repeat(RANKS, 0)
OUT = np.arange(100, 132, dtype=np.float32)


def applied(name: str, xs: np.ndarray, outs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Result and gradient of one function on this rank."""
    layout = start(Topology(tensor=RANKS), 0)
    x = paddle.to_tensor(xs[layout.tensor_rank], stop_gradient=False)
    function: Any = getattr(tensor_group, name)
    groups = () if name.endswith("_rows") else (layout.tensor_group,)
    out = function(x.clone(), *groups)  # a clone, because sums are made in place
    out.backward(paddle.to_tensor(outs[layout.tensor_rank]))
    assert x.grad is not None
    return out.numpy(), x.grad.numpy()


def outs_of(*shape: int) -> np.ndarray:
    return OUT[: RANKS * int(np.prod(shape))].reshape(RANKS, *shape)


WHOLE, HALF, WIDE, LONG = outs_of(4, 2), outs_of(2, 2), outs_of(4, 4), outs_of(8, 2)
COLUMNS, ROWS = np.concatenate([*X], 1), np.concatenate([*X])
CASES = {
    "copied": (SAME, WHOLE, SAME, [WHOLE.sum(0)] * 2),
    "summed": (X, WHOLE, [X.sum(0)] * 2, WHOLE),
    "joined_columns": (X, WIDE, [COLUMNS] * 2, [WIDE[0][:, :2], WIDE[1][:, 2:]]),
    "own_rows": (SAME, HALF, [SAME[0][:2], SAME[0][2:]], [np.concatenate([*HALF])] * 2),
    "joined_rows": (X, LONG, [ROWS] * 2, [LONG[0][:4], LONG[1][4:]]),
    "shared_rows": (X, LONG, [ROWS] * 2, [LONG.sum(0)[:4], LONG.sum(0)[4:]]),
    "summed_rows": (X, HALF, [X.sum(0)[:2], X.sum(0)[2:]], [np.concatenate([*HALF])] * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name: str):
    xs, outs, results, slopes = CASES[name]
    for rank, (result, slope) in enumerate(run_ranks(RANKS, applied, name, xs, outs)):
        np.testing.assert_array_equal(result, results[rank])
        np.testing.assert_array_equal(slope, slopes[rank])


def summed_gradients() -> np.ndarray:
    """The gradient of a parameter after two backward passes; each uses it twice."""
    layout = start(Topology(tensor=RANKS), 0)
    parameter = paddle.create_parameter([2], "float32")
    tensor_group.sum_gradients(parameter, layout.tensor_group)
    for _ in range(2):
        (parameter * (layout.tensor_rank + 1.0) + parameter).sum().backward()
    assert parameter.grad is not None
    return parameter.grad.numpy()


def test_gradients_of_a_parameter_are_summed_in_every_backward_pass():
    for found in run_ranks(RANKS, summed_gradients):
        np.testing.assert_array_equal(found, [10.0, 10.0])


def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random numbers outside, inside and outside again."""
    start(Topology(tensor=RANKS), 0)
    before = paddle.rand([4]).numpy()
    with tensor_group.own_random():
        inside = paddle.rand([4]).numpy()
    return before, inside, paddle.rand([4]).numpy()


def test_own_random_numbers_differ_between_ranks_and_the_others_do_not():
    one, two = run_ranks(RANKS, drawn)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[2], two[2])
    assert not (one[1] == two[1]).any()
