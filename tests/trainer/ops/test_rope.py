import numpy as np
import paddle
import pytest

from tests.trainer.ops import naive
from tests.trainer.ops.checks import arrays, assert_deterministic, assert_same
from trainer.ops.rope import rotary_tables, rotate

POSITIONS = np.array([0, 1, 2, 7, 3, 0, 500])


def rotated(x: paddle.Tensor, heads: int, head_dim: int, theta: float) -> paddle.Tensor:
    (table,) = rotary_tables(POSITIONS, head_dim, theta, (heads,), paddle.float32)
    return rotate(x, table)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 2), (3, 8), (2, 10)])
def test_it_follows_the_formula_and_its_gradients(heads: int, head_dim: int):
    assert_same(
        lambda x: rotated(x, heads, head_dim, 100.0),
        lambda x: naive.rotate(x, POSITIONS, head_dim, 100.0),
        arrays((len(POSITIONS), heads * head_dim)),
    )


def test_scores_depend_on_distances_alone():
    q, k = (paddle.to_tensor(x.astype("float32")) for x in arrays((1, 16), (1, 16)))

    def score(query: int, key: int) -> float:
        tables = [rotary_tables(np.array([p]), 16, 1e4, (1,), paddle.float32)[0] for p in (query, key)]
        return float((rotate(q, tables[0]) * rotate(k, tables[1])).sum())

    assert score(40, 37) == pytest.approx(score(3, 0), rel=1e-5)


def test_the_same_inputs_give_the_same_bits():
    assert_deterministic(lambda x: rotated(x, 4, 32, 1e4), arrays((len(POSITIONS), 128)))
