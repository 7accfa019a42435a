"""Numbers in words, against unpackers that shift and mask as the formats' descriptions say."""

import numpy as np
import paddle
import pytest

from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.quantization.compressed_tensors import pack_compressed, unpack_compressed
from trainer.quantization.formats import Integers, quantize_rows
from trainer.quantization.gptq_format import headers, pack_gptq, unpack_gptq
from trainer.quantization.packing import pack_words, unpack_words, word_count

RNG = np.random.default_rng(3)
OUTPUTS, INPUTS, GROUP = 16, 32, 8


def shifted(words: np.ndarray, bits: int) -> np.ndarray:
    """Every number of `words [rows, n]`, lowest bits first, without the offset."""
    wide = words.astype(np.int64) & 0xFFFFFFFF
    parts = [(wide >> (bits * place)) & ((1 << bits) - 1) for place in range(32 // bits)]
    return np.stack(parts, axis=-1).reshape(len(words), -1)


def integers(bits: int, group_size: int = GROUP, shuffled: bool = False) -> Integers:
    weight = paddle.to_tensor(RNG.normal(size=(OUTPUTS, INPUTS)).astype(np.float32))
    found = quantize_rows(weight, bits, group_size)
    if not shuffled:
        return found
    g_idx = paddle.to_tensor(RNG.permutation(np.arange(INPUTS) // group_size).astype(np.int32))
    return Integers(found.values, found.scales, group_size, bits, g_idx)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("count", [1, 7, 8, 24])
def test_words_hold_the_numbers_lowest_bits_first_and_raised(bits: int, count: int):
    half = 1 << (bits - 1)
    values = RNG.integers(-half, half, size=(5, count)).astype(np.int8)
    words = pack_words(values, bits)
    assert words.dtype == np.int32
    assert words.shape == (5, word_count(count, bits))
    assert (shifted(words, bits)[:, :count] - half == values).all()
    assert (unpack_words(words, bits, count) == values).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [-1, GROUP])
@pytest.mark.parametrize("version", [1, 2])
def test_the_formula_of_gptq_readers_gives_our_weights(bits: int, group_size: int, version: int):
    """(qweight - (qzeros + 1)) * scales[g_idx], by input and output; version 2 adds no 1."""
    scheme = QuantizationScheme(StoredAs.GPTQ, bits, group_size, zeros_are_lower=version == 1)
    ours = integers(bits, group_size, shuffled=group_size > 0)
    tensors = pack_gptq(ours, scheme)
    numbers = shifted(tensors["qweight"].T, bits).T
    zeros = shifted(tensors["qzeros"], bits) + (1 if version == 1 else 0)
    g_idx = tensors["g_idx"]
    weight = (numbers - zeros[g_idx]) * tensors["scales"].astype(np.float32)[g_idx]
    np.testing.assert_array_equal(weight.T, ours.with_half_scales().dequantize().numpy())
    for name, header in headers(OUTPUTS, INPUTS, scheme).items():
        assert tensors[name].shape == header.shape
        assert tensors[name].nbytes == header.bytes


@pytest.mark.parametrize("shuffled", [False, True])
def test_gptq_tensors_are_read_as_they_were_written(shuffled: bool):
    scheme = QuantizationScheme(StoredAs.GPTQ, 4, GROUP, act_order=shuffled)
    ours = integers(4, shuffled=shuffled).with_half_scales()
    again = unpack_gptq(pack_gptq(ours, scheme), scheme)
    assert (again.g_idx is None) is not shuffled
    assert (again.values == ours.values).all()
    np.testing.assert_array_equal(again.dequantize().numpy(), ours.dequantize().numpy())


def test_other_zero_points_and_groups_out_of_range_are_refused():
    scheme = QuantizationScheme(StoredAs.GPTQ, 4, GROUP)
    tensors = pack_gptq(integers(4), scheme)
    for qzeros in (tensors["qzeros"] + 1, tensors["qzeros"] + 0x22222222):
        with pytest.raises(ValueError, match="qzeros: got other zero points"):
            unpack_gptq(tensors | {"qzeros": qzeros}, scheme)
    with pytest.raises(ValueError, match="g_idx: got 1 to 4, expected 0 to 3"):
        unpack_gptq(tensors | {"g_idx": tensors["g_idx"] + 1}, scheme)


def test_zero_points_of_version_2_that_are_called_version_1_are_understood():
    ours = integers(4).with_half_scales()
    second = QuantizationScheme(StoredAs.GPTQ, 4, GROUP, zeros_are_lower=False)
    again = unpack_gptq(pack_gptq(ours, second), QuantizationScheme(StoredAs.GPTQ, 4, GROUP))
    np.testing.assert_array_equal(again.dequantize().numpy(), ours.dequantize().numpy())


def test_layers_that_do_not_fill_words_have_no_place_in_gptqs_layout():
    with pytest.raises(ValueError, match="expected multiples of 8"):
        headers(12, 32, QuantizationScheme(StoredAs.GPTQ, 4))


@pytest.mark.parametrize("stored_as", [StoredAs.INT_QUANTIZED, StoredAs.PACK_QUANTIZED])
def test_compressed_tensors_are_read_as_they_were_written(stored_as: StoredAs):
    bits = 8 if stored_as is StoredAs.INT_QUANTIZED else 4
    scheme = QuantizationScheme(stored_as, bits, GROUP)
    ours = integers(bits)
    tensors = pack_compressed(ours, scheme)
    if stored_as is StoredAs.PACK_QUANTIZED:
        assert (shifted(tensors["weight_packed"], bits) - 8 == ours.values.numpy()).all()
        assert tensors["weight_shape"].tolist() == [OUTPUTS, INPUTS]
    again = unpack_compressed(tensors, scheme, INPUTS)
    np.testing.assert_array_equal(again.dequantize().numpy(), ours.dequantize().numpy())
    with pytest.raises(ValueError, match="groups in another order"):
        pack_compressed(integers(bits, shuffled=True), scheme)
