import numpy as np
import pytest

from tests.trainer.ops import naive
from trainer.ops.alibi import alibi_slopes


@pytest.mark.parametrize("heads", [*range(1, 34), 112])
def test_slopes_are_those_of_the_paper_for_any_number_of_heads(heads: int):
    slopes = alibi_slopes(heads)
    assert slopes.shape == (heads,)
    np.testing.assert_allclose(slopes, naive.alibi_slopes(heads), rtol=1e-6)


def test_slopes_of_powers_of_two_are_a_geometric_series():
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-n for n in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(16), [2.0 ** (-n / 2) for n in range(1, 17)])
    np.testing.assert_allclose(alibi_slopes(1), [2.0**-8])


def test_other_numbers_take_every_other_slope_of_the_next_power():
    expected = [*(2.0**-n for n in range(1, 9)), *(2.0**-n for n in (0.5, 1.5, 2.5, 3.5))]
    np.testing.assert_allclose(alibi_slopes(12), expected)
    np.testing.assert_allclose(alibi_slopes(3), [2.0**-4, 2.0**-8, 2.0**-2])
