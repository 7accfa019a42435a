import numpy as np
import paddle
import pytest

from tests.trainer.ops import naive
from tests.trainer.ops.checks import arrays, assert_deterministic, assert_frozen, assert_same
from trainer.ops.rms_norm import rms_norm


def test_it_follows_the_formula_and_its_gradients():
    inputs = arrays((5, 7), (7,))
    assert_same(lambda x, w: rms_norm(x, w, 1e-6), lambda x, w: naive.rms_norm(x, w, 1e-6), inputs)


def test_the_epsilon_counts_for_small_inputs():
    x, w = arrays((3, 6), (6,))
    x = (x * 1e-3).astype(np.float32).astype(np.float64)
    assert_same(
        lambda w: rms_norm(paddle.to_tensor(x.astype("float32")), w, 1e-4),
        lambda w: naive.rms_norm(x, w, 1e-4),
        [w],
    )


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_is_frozen_gets_no_gradient(frozen: int):
    assert_frozen(lambda x, w: rms_norm(x, w, 1e-6), arrays((3, 6), (6,)), frozen)


def test_a_zero_row_stays_zero():
    out = rms_norm(paddle.zeros([2, 4]), paddle.ones([4]), 1e-6)
    assert (out.numpy() == 0).all()


def test_the_same_inputs_give_the_same_bits():
    assert_deterministic(lambda x, w: rms_norm(x, w, 1e-6), arrays((257, 96), (96,)))
