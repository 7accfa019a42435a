"""Factors and shifts are those of the formulas, and the search finds what lowers the error."""

from collections.abc import Callable

import numpy as np
import pytest

from trainer.quantization.awq import awq_factors
from trainer.quantization.piecewise import PiecewiseSearch, half_open, pieces_of
from trainer.quantization.smooth import ChannelSizes, at_most_one


def sizes(channels: int = 12) -> ChannelSizes:
    draws = np.random.default_rng(0)
    found = draws.lognormal(0, 0.3, channels)
    found[2] *= 100
    return ChannelSizes(found, draws.lognormal(0, 0.3, channels))


def distance_to(target: np.ndarray) -> Callable[[np.ndarray], float]:
    return lambda factors: float(np.square(np.log(factors / target)).sum())


def test_factors_are_those_of_smoothquant() -> None:
    given = sizes()
    np.testing.assert_allclose(given.factors(0.3), given.input**0.3 / given.weight**0.7)


def test_channels_without_inputs_or_weights_stay_as_they_are() -> None:
    given = ChannelSizes(np.array([0.0, 4.0, 4.0]), np.array([1.0, 0.0, 1.0]))
    np.testing.assert_allclose(given.factors(0.5), [1, 1, 2])


def test_factors_are_never_below_a_hundred_thousandth() -> None:
    given = ChannelSizes(np.array([1e-9]), np.array([1e9]))
    assert given.factors(0.5)[0] == 1e-5


def test_the_largest_factor_becomes_one() -> None:
    np.testing.assert_allclose(at_most_one(np.array([2.0, 8.0])), [0.25, 1.0])


@pytest.mark.parametrize(
    ("ends", "step", "first", "last", "count"),
    [((0.2, 0.8), 0.01, 0.2, 0.79, 60), ((1.0, 5.0), 0.5, 1.0, 4.5, 8), ((1.0, 1.2), 0.5, 1.0, 1.0, 1)],
)
def test_ranges_are_half_open(
    ends: tuple[float, float], step: float, first: float, last: float, count: int
) -> None:
    values = half_open(*ends, step)
    assert len(values) == count
    assert values[0] == pytest.approx(first)
    assert values[-1] == pytest.approx(last)


def test_an_empty_range_has_nothing() -> None:
    assert len(half_open(0.5, 0.5, 0.01)) == 0


def test_channels_are_put_in_pieces_by_size_smallest_first() -> None:
    values = np.array([1.0, 50.0, 1.1, 10.0, 9.5, 0.9, 1.2])
    found = [np.flatnonzero(piece).tolist() for piece in pieces_of(values, 3)]
    assert found == [[0, 2, 5, 6], [3, 4], [1]]


def test_there_are_no_empty_pieces() -> None:
    assert [int(piece.sum()) for piece in pieces_of(np.ones(5), 3)] == [5]
    assert len(pieces_of(np.array([1.0, 2.0]), 3)) == 2


def test_the_search_finds_the_alpha_of_each_piece() -> None:
    given = sizes()
    large = given.input > 10
    target = np.where(large, given.factors(0.7), given.factors(0.3))
    found = PiecewiseSearch(pieces=2).find(given, distance_to(target))
    np.testing.assert_allclose(found, target, rtol=1e-9)


def test_the_search_finds_constants() -> None:
    given = sizes()
    target = np.where(given.input > 10, given.factors(0.5), 2.5)
    found = PiecewiseSearch(pieces=2).find(given, distance_to(target))
    np.testing.assert_allclose(found, target, rtol=1e-9)


def test_other_numbers_of_pieces_are_tried_afresh_and_the_best_is_kept() -> None:
    given = sizes()
    target = given.factors(0.65)
    seen: list[np.ndarray] = []

    def error_of(factors: np.ndarray) -> float:
        seen.append(factors)
        return distance_to(target)(factors)

    found = PiecewiseSearch(pieces=3, try_fewer=True).find(given, error_of)
    np.testing.assert_allclose(found, target, rtol=1e-9)
    starts = [factors for factors in seen if np.array_equal(factors, given.factors(0.5))]
    assert len(starts) >= 3


def test_the_search_is_never_worse_than_plain_smoothing_even_where_its_ranges_leave_it_out() -> None:
    given = sizes()
    error_of = distance_to(given.factors(0.5))
    found = PiecewiseSearch(alpha_min=0.7, alpha_max=0.8, scale_min=4.0).find(given, error_of)
    assert error_of(found) == 0


def test_of_equal_errors_the_first_counts() -> None:
    given = sizes()
    np.testing.assert_array_equal(PiecewiseSearch().find(given, lambda _: 1.0), given.factors(0.5))


def test_awq_tries_twenty_powers_of_the_mean_inputs() -> None:
    mean = np.array([0.5, 1.0, 20.0])
    tried: list[np.ndarray] = []

    def error_of(factors: np.ndarray) -> float:
        tried.append(factors)
        return abs(len(tried) - 8)

    found = awq_factors(mean, error_of)
    powers = [mean ** (number / 20) for number in range(20)]
    np.testing.assert_allclose(tried, [s / np.sqrt(s.max() * s.min()) for s in powers])
    np.testing.assert_array_equal(found, tried[7])
