import pytest

from tests.trainer.ops.checks import arrays, assert_deterministic, assert_frozen, assert_same
from trainer.ops.bias import add_bias


def test_it_follows_the_formula_and_its_gradients():
    assert_same(add_bias, lambda x, bias: x + bias, arrays((5, 3), (3,)))


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_is_frozen_gets_no_gradient(frozen: int):
    assert_frozen(add_bias, arrays((5, 3), (3,)), frozen)


def test_the_same_inputs_give_the_same_bits():
    assert_deterministic(add_bias, arrays((500, 130), (130,)))
