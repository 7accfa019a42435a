"""Whole numbers with scales: rounding, limits, groups. The expected numbers are numpy's, in float64."""

import numpy as np
import paddle
import pytest

from trainer.quantization.formats import Integers, absmax_scales, half_scales, quantize_rows

RNG = np.random.default_rng(5)


def weights(outputs: int = 6, inputs: int = 32) -> np.ndarray:
    return RNG.normal(size=(outputs, inputs)).astype(np.float32)


@pytest.mark.parametrize(("bits", "highest"), [(4, 7), (8, 127)])
@pytest.mark.parametrize("group_size", [-1, 8])
def test_each_weight_becomes_the_nearest_multiple_of_its_groups_scale(
    bits: int, highest: int, group_size: int
):
    weight = weights()
    found = quantize_rows(paddle.to_tensor(weight), bits, group_size)
    groups = weight.astype(np.float64).reshape(6, 1 if group_size < 0 else 4, -1)
    scales = np.abs(groups).max(-1) / highest
    np.testing.assert_allclose(found.scales.numpy(), scales, rtol=1e-6)
    assert found.values.dtype == paddle.int8
    error = np.abs(found.dequantize().numpy().reshape(groups.shape) - groups)
    assert (error <= scales[..., None] * 0.5 * (1 + 1e-5)).all()
    assert np.abs(found.values.numpy()).max() == highest


def test_halves_are_rounded_to_even_and_numbers_are_clipped_to_what_the_bits_hold():
    weight = paddle.to_tensor([[0.5, 1.5, -2.5, 3.5, 9.0, -9.0, -7.6, 0.0]])
    found = quantize_rows(weight, 4, scales=paddle.ones([1, 1]))
    assert found.values.numpy().tolist() == [[0, 2, -2, 4, 7, -8, -8, 0]]


def test_a_row_of_zeros_stays_zero():
    weight = weights(2)
    weight[1] = 0
    found = quantize_rows(paddle.to_tensor(weight), 4)
    assert found.scales.numpy()[1, 0] == 1.0
    assert not found.dequantize().numpy()[1].any()


def test_inputs_may_be_in_any_group():
    scales = paddle.to_tensor([[1.0, 10.0]])
    values = paddle.to_tensor([[1, 2, 3, 4]], dtype="int8")
    g_idx = paddle.to_tensor([1, 0, 1, 0], dtype="int32")
    assert Integers(values, scales, 2, 4, g_idx).dequantize().numpy().tolist() == [[10, 2, 30, 4]]
    plain = Integers(values, scales, 2, 4)
    assert plain.dequantize().numpy().tolist() == [[1, 2, 30, 40]]
    assert plain.groups().numpy().tolist() == [0, 0, 1, 1]


def test_scales_for_half_precision_are_never_zero_nor_infinite():
    found = half_scales(paddle.to_tensor([[1e-12, 1e9, 0.1]])).numpy()
    assert found[0, 0] > 0
    assert np.isfinite(found).all()
    assert found[0, 2] == np.float32(np.float16(0.1))
    integers = quantize_rows(paddle.to_tensor(weights()), 8, 8).with_half_scales()
    assert (integers.scales.numpy().astype(np.float16) == integers.scales.numpy()).all()


def test_what_does_not_fit_is_refused():
    weight = paddle.to_tensor(weights())
    with pytest.raises(ValueError, match=r"group_size: got 5, expected -1 or a divisor of 32"):
        absmax_scales(weight, 4, 5)
    with pytest.raises(ValueError, match="bits: got 3"):
        quantize_rows(weight, 3)
    with pytest.raises(ValueError, match="scales: got shape"):
        Integers(paddle.zeros([2, 4], paddle.int8), paddle.ones([2, 2]), -1, 8)
