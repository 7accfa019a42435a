"""The factor of the inverse, in place, is NumPy's."""

import numpy as np
import paddle
import pytest

from trainer.quantization.cholesky import invert_to_factor


def positive(size: int) -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(2 * size, size))
    return x.T @ x / size


@pytest.mark.parametrize("size", [1, 60, 128, 300])
def test_the_factor_is_upper_triangular_and_gives_the_inverse(size: int) -> None:
    given = positive(size)
    matrix = paddle.to_tensor(given)
    assert invert_to_factor(matrix)
    found = matrix.numpy()
    assert not np.tril(found, -1).any()
    np.testing.assert_allclose(found, np.linalg.cholesky(np.linalg.inv(given)).T, rtol=1e-9, atol=1e-12)


def test_a_matrix_that_is_singular_or_not_finite_has_none() -> None:
    singular, broken, negative = positive(300), positive(300), positive(300)
    singular[:, 7] = singular[7] = 0.0
    broken[200, 200] = np.nan
    negative[5, 5] *= -1
    for given in (singular, broken, negative):
        assert not invert_to_factor(paddle.to_tensor(given))


def test_ticks_come_all_the_time() -> None:
    ticks: list[None] = []
    invert_to_factor(paddle.to_tensor(positive(300)), lambda: ticks.append(None))
    assert len(ticks) > 4
