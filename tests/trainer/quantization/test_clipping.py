"""Ranges are narrowed to what gives the smallest error of outputs."""

import numpy as np
import paddle
import pytest

from trainer.quantization.awq import clipped

OUTPUTS, INPUTS, TOKENS = 5, 16, 40


def searched(weight: np.ndarray, x: np.ndarray, bits: int, group: int) -> np.ndarray:
    """Every shrinking of every group of every row by itself, in float64."""
    found = weight.astype(np.float64).copy()
    highest = 2 ** (bits - 1) - 1
    for row in found:
        for start in range(0, INPUTS, group):
            part, inputs = row[start : start + group].copy(), x[:, start : start + group].astype(np.float64)
            lowest = np.inf
            for step in range(10):
                limit = np.abs(part).max() * (1 - step / 20)
                narrow = np.clip(part, -limit, limit)
                rounded = np.rint(narrow / (limit / highest)) * (limit / highest)
                error = np.square(inputs @ (rounded - part)).sum()
                if error < lowest:
                    lowest, row[start : start + group] = error, narrow
    return found


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [4, INPUTS])
def test_each_group_of_each_row_has_the_best_range(bits: int, group: int) -> None:
    draws = np.random.default_rng(0)
    weight = draws.standard_t(3, (OUTPUTS, INPUTS)).astype(np.float32)
    x = draws.normal(size=(TOKENS, INPUTS)).astype(np.float32)
    found = clipped(paddle.to_tensor(weight), paddle.to_tensor(x), bits, group).numpy()
    np.testing.assert_allclose(found, searched(weight, x, bits, group), rtol=1e-5)
    assert bits == 8 or (found != weight).any()


def test_a_group_of_zeros_stays() -> None:
    weight = np.zeros((OUTPUTS, INPUTS), np.float32)
    weight[:, :4] = 1.0
    found = clipped(paddle.to_tensor(weight), paddle.ones([TOKENS, INPUTS]), 4, 4).numpy()
    np.testing.assert_array_equal(found, weight)
