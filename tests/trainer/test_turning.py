"""Matrices that lie the other way."""

import numpy as np
import pytest

from trainer.turning import put_turned

WHOLE = np.arange(35 * 20, dtype=np.float32).reshape(35, 20)


@pytest.mark.parametrize(
    "values",
    [WHOLE, WHOLE[3:30, 2:9], WHOLE[::2], WHOLE.T, WHOLE[:1], WHOLE[:0], WHOLE[0], WHOLE.astype(np.uint16)],
    ids=["whole", "part", "every other row", "turned", "one row", "nothing", "vector", "bfloat16"],
)
def test_a_matrix_is_turned_into_a_part_of_another(values: np.ndarray) -> None:
    room = np.zeros((*values.shape[::-1], 2), values.dtype)
    put_turned(room[..., 1], values)
    assert room[..., 1].tolist() == values.T.tolist()
    assert not room[..., 0].any()
