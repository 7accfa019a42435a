import numpy as np
import paddle
import pytest

from trainer.ops.finite import mark_failures


def marked(*inputs: np.ndarray) -> np.ndarray:
    out = paddle.arange(6, dtype="float32").reshape([2, 3])
    return mark_failures(out, *(paddle.to_tensor(x.astype("float32")) for x in inputs)).numpy()


def test_finite_inputs_change_nothing():
    np.testing.assert_array_equal(marked(np.full((5, 7), 1e30), np.ones((2, 3, 4))), [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (4, 6), (2, 3)])
def test_one_broken_element_breaks_everything(value: float, place: tuple[int, int]):
    broken = np.zeros((5, 7))
    broken[place] = value
    assert np.isnan(marked(np.ones((2, 2)), broken)).all()
