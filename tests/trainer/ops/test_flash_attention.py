"""What is computed on the way to the GPU kernels. The kernels themselves need a GPU."""

import numpy as np
import paddle
import pytest

from trainer.ops.flash_attention import fits_flash, flash_can_run, start_rows


def visible(rows: np.ndarray) -> np.ndarray:
    """What FlashMask shows with causal attention: key j to the queries j <= i < rows[j]."""
    ends = rows.reshape(-1)
    query, key = np.indices((len(ends), len(ends)))
    return (query >= key) & (query < ends[key])


def test_keys_are_hidden_from_the_end_of_their_document_on():
    assert start_rows((2, 3)).tolist() == [[[[2], [2], [5], [5], [5]]]]
    assert start_rows((2, 3)).dtype == np.int32


@pytest.mark.parametrize("lengths", [(1,), (5,), (3, 3), (4, 1, 1, 3), (1, 1, 1)])
def test_tokens_see_their_own_document_up_to_themselves_and_nothing_else(lengths: tuple[int, ...]):
    document = np.repeat(np.arange(len(lengths)), lengths)
    same = document[:, None] == document[None]
    expected = same & np.tri(sum(lengths), dtype=bool)
    np.testing.assert_array_equal(visible(start_rows(lengths)), expected)


@pytest.mark.parametrize(
    ("head_dim", "fits"), [(64, True), (80, True), (256, True), (264, False), (36, False)]
)
def test_the_kernels_take_heads_of_certain_widths(head_dim: int, fits: bool):
    assert fits_flash(head_dim) is fits


def test_a_cpu_runs_no_flash_kernel():
    assert not flash_can_run(paddle.zeros([2, 64]), 64)
