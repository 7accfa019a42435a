"""Shifts are the middles of ranges."""

import numpy as np
import paddle
import pytest

from trainer.quantization.groups import Source
from trainer.quantization.observers import InputStatistics
from trainer.quantization.shift import ShiftSampler, shifts


class Channels(Source):
    """Channels of nothing: only how they lie is asked for."""

    @property
    def can_shift(self) -> bool:
        return True

    def divide(self, factors: np.ndarray) -> None:
        raise NotImplementedError

    def subtract(self, shifts: np.ndarray) -> None:
        raise NotImplementedError


def statistics() -> InputStatistics:
    """Two batches, of two documents and one, with four channels."""
    low = np.array([[-1, 0, 2, -8], [-3, 1, 1, -6], [-2, -4, 0, -7]], np.float32)
    high = np.array([[1, 2, 4, -6], [5, 3, 2, -2], [0, 0, 6, -5]], np.float32)
    return InputStatistics(low, high, np.array([0, 0, 1]), np.ones(4), paddle.zeros([1, 4]))


def test_a_shift_is_the_middle_of_the_range_of_all_batches() -> None:
    found = shifts(statistics(), Channels(np.arange(4), is_norm=True), ShiftSampler.NONE)
    np.testing.assert_allclose(found, [1.0, -0.5, 3.0, -5.0])


def test_or_a_running_mean_of_the_middles_of_batches() -> None:
    first, second = np.array([1.0, 1.5, 2.5, -5.0]), np.array([-1.0, -2.0, 3.0, -6.0])
    found = shifts(statistics(), Channels(np.arange(4), is_norm=True), ShiftSampler.EMA)
    np.testing.assert_allclose(found, 0.98 * first + 0.02 * second)


@pytest.mark.parametrize("sampler", ShiftSampler)
def test_channels_with_one_owner_have_the_middle_of_their_joint_range(sampler: ShiftSampler) -> None:
    shared = Channels(np.array([0, 1, 0, 1]), is_norm=False)
    found = shifts(statistics().first(1), shared, sampler)
    np.testing.assert_allclose(found, [(-3 + 5) / 2, (-8 + 3) / 2])
