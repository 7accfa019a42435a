"""What is kept of inputs is what NumPy finds in all of them."""

import numpy as np
import paddle
import pytest

from trainer.quantization.observers import ActMethod, InputObserver, InputStatistics, WeightMethod

LENGTHS = ([3, 5], [4], [2, 2, 6])


def parts() -> list[list[np.ndarray]]:
    """Documents of three batches, 6 channels."""
    draws = np.random.default_rng(0)
    return [[draws.normal(1, 3, (n, 6)).astype(np.float32) for n in lengths] for lengths in LENGTHS]


def observed(sample: int = 9, last_only: bool = False) -> InputStatistics:
    observer = InputObserver(len(LENGTHS), sample, last_only)
    for number, documents in enumerate(parts()):
        observer.add(paddle.to_tensor(np.concatenate(documents)), LENGTHS[number], number)
    return observer.statistics()


def absmax(documents: list[np.ndarray]) -> list[float]:
    return [float(np.abs(x).max()) for x in documents]


def test_abs_max_is_the_largest_value_of_all_batches() -> None:
    expected = max(max(absmax(documents)) for documents in parts())
    assert observed().absmax(ActMethod.ABS_MAX) == pytest.approx(expected)


def test_avg_is_the_mean_over_documents_then_over_batches() -> None:
    expected = np.mean([np.mean(absmax(documents)) for documents in parts()])
    assert observed().absmax(ActMethod.AVG) == pytest.approx(float(expected))


def test_only_the_first_batches_may_count() -> None:
    expected = np.mean([np.mean(absmax(documents)) for documents in parts()[:2]])
    assert observed().first(2).absmax(ActMethod.AVG) == pytest.approx(float(expected))


@pytest.mark.parametrize("method", ActMethod)
def test_ranges_under_factors_and_shifts_are_those_of_the_moved_input(method: ActMethod) -> None:
    draws = np.random.default_rng(1)
    shifts, factors = draws.normal(size=6), draws.uniform(0.2, 3, 6)
    moved = [[(x - shifts) / factors for x in documents] for documents in parts()]
    expected = {
        ActMethod.ABS_MAX: max(max(absmax(documents)) for documents in moved),
        ActMethod.AVG: float(np.mean([np.mean(absmax(documents)) for documents in moved])),
    }[method]
    assert observed().moved(shifts, factors).absmax(method) == pytest.approx(expected, rel=1e-5)
    assert observed().moved(shifts).absmax(method, factors) == pytest.approx(expected, rel=1e-5)


def test_channels_have_their_largest_and_mean_absolute_values() -> None:
    everything = np.concatenate([x for documents in parts() for x in documents])
    np.testing.assert_allclose(observed().channel_absmax, np.abs(everything).max(axis=0))
    np.testing.assert_allclose(observed().mean_abs, np.abs(everything).mean(axis=0), rtol=1e-6)


def test_the_sample_is_of_all_batches_or_of_the_last_one() -> None:
    last = np.concatenate(parts()[-1])
    of_all, of_last = observed(sample=9).sample.numpy(), observed(sample=5, last_only=True).sample.numpy()
    assert of_all.shape == (9, 6)
    assert [any((row == x).all() for x in last) for row in of_all] == [False] * 6 + [True] * 3
    assert of_last.shape == (5, 6)
    assert all(any((row == x).all() for x in last) for row in of_last)


def test_weights_have_a_scale_for_each_row_or_group() -> None:
    assert WeightMethod("abs_max_channel_wise").group_size(64) == -1
    assert WeightMethod("groupwise").group_size(64) == 64
