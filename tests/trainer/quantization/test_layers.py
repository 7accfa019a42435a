"""What a quantized layer computes, against numpy's whole numbers."""

import numpy as np
import paddle
import pytest

from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.quantization.formats import quantize_rows
from trainer.quantization.layers import QuantizedLinear

RNG = np.random.default_rng(11)
WEIGHT_ONLY = QuantizationScheme(StoredAs.PACK_QUANTIZED, 4, 16)


def weight(outputs: int, inputs: int) -> paddle.Tensor:
    return paddle.to_tensor(RNG.normal(size=(outputs, inputs)).astype(np.float32))


def test_with_weights_alone_a_layer_multiplies_by_what_its_numbers_stand_for():
    integers = quantize_rows(weight(8, 32), 4, 16)
    bias = paddle.to_tensor(RNG.normal(size=8).astype(np.float32))
    x = RNG.normal(size=(5, 32)).astype(np.float32)
    out = QuantizedLinear(integers, WEIGHT_ONLY, bias)(paddle.to_tensor(x))
    wanted = x.astype(np.float64) @ integers.dequantize().numpy().T.astype(np.float64) + bias.numpy()
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("group_size", [-1, 64])
@pytest.mark.parametrize("inputs", [64, 4096])
def test_with_inputs_too_a_layer_gives_the_product_of_8_bit_numbers(group_size: int, inputs: int):
    scheme = QuantizationScheme(StoredAs.INT_QUANTIZED, 8, group_size, activations=True)
    integers = quantize_rows(weight(8, inputs), 8, group_size)
    # Large numbers of one sign, so that sums leave the whole numbers that float32 holds.
    x = np.abs(RNG.normal(size=(5, inputs)) * 3 + 9).astype(np.float32)
    scale = np.float32(9 / 127)
    layer = QuantizedLinear(integers, scheme, input_scale=float(scale))
    q = np.clip(np.rint(x / scale), -128, 127).astype(np.int64)
    groups = integers.scales.shape[1]
    parts = np.einsum(
        "tgi,ogi->tog",
        q.reshape(5, groups, -1),
        integers.values.numpy().astype(np.int64).reshape(8, groups, -1),
    )
    scales = integers.scales.numpy() * scale
    wanted = (parts.astype(np.float32) * scales).sum(-1)
    out = layer(paddle.to_tensor(x)).numpy()
    if group_size < 0:
        np.testing.assert_array_equal(out, wanted)
    np.testing.assert_allclose(out, wanted, rtol=2e-6)


def test_the_dtype_of_the_inputs_is_kept():
    integers = quantize_rows(weight(8, 16), 8)
    with_inputs = QuantizationScheme(StoredAs.INT_QUANTIZED, 8, activations=True)
    alone = QuantizationScheme(StoredAs.INT_QUANTIZED, 8)
    x = paddle.to_tensor(RNG.normal(size=(3, 16))).astype("float64")
    for layer in (QuantizedLinear(integers, with_inputs, input_scale=0.05), QuantizedLinear(integers, alone)):
        out = layer(x)
        assert out.dtype == paddle.float64
        wanted = x.astype("float32").numpy() @ integers.dequantize().numpy().T
        np.testing.assert_allclose(out.astype("float32").numpy(), wanted, atol=0.25)


def test_scales_are_what_gptq_files_can_hold():
    integers = quantize_rows(weight(8, 32), 4, 16)
    layer = QuantizedLinear(integers, QuantizationScheme(StoredAs.GPTQ, 4, 16))
    scales = layer.integers.scales.numpy()
    assert (scales == scales.astype(np.float16)).all()
    assert (QuantizedLinear(integers, WEIGHT_ONLY).integers.scales == integers.scales).all()


def test_what_does_not_fit_is_refused():
    integers = quantize_rows(weight(8, 32), 4, 16)
    with pytest.raises(ValueError, match="got 4 bits in groups of 16, the scheme says 8 and -1"):
        QuantizedLinear(integers, QuantizationScheme(StoredAs.INT_QUANTIZED, 8))
    with pytest.raises(ValueError, match=r"input_scale: got 0\.1"):
        QuantizedLinear(integers, WEIGHT_ONLY, input_scale=0.1)
    both = QuantizationScheme(StoredAs.INT_QUANTIZED, 4, 16, activations=True)
    with pytest.raises(ValueError, match="input_scale: got None"):
        QuantizedLinear(integers, both)
    with pytest.raises(ValueError, match="expected a number above 0"):
        QuantizedLinear(integers, both, input_scale=0.0)
