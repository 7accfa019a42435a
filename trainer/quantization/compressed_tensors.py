"""The layout of the compressed-tensors library, which vLLM and transformers read.

A layer `name` of `[out, in]` has

* int-quantized: `name.weight` int8 `[out, in]`,
* pack-quantized: `name.weight_packed` int32 `[out, in * bits / 32]`, numbers along the inputs raised by
  2^(bits - 1), and `name.weight_shape` int64 `[2]`,
* `name.weight_scale` float32 `[out, groups]`,
* `name.input_scale` float32 `[1]` where inputs are quantized too,
* `name.bias`, if any, as before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle

from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.models.safetensors_file import TensorHeader
from trainer.quantization.formats import Integers, group_count
from trainer.quantization.packing import pack_words, unpack_words, word_count


def headers(outputs: int, inputs: int, scheme: QuantizationScheme) -> dict[str, TensorHeader]:
    """What files hold for a layer, by the last part of the name."""
    found = {"weight_scale": TensorHeader("F32", (outputs, group_count(inputs, scheme.group_size)))}
    if scheme.stored_as is StoredAs.INT_QUANTIZED:
        found["weight"] = TensorHeader("I8", (outputs, inputs))
    else:
        found["weight_packed"] = TensorHeader("I32", (outputs, word_count(inputs, scheme.bits)))
        found["weight_shape"] = TensorHeader("I64", (2,))
    if scheme.activations:
        found["input_scale"] = TensorHeader("F32", (1,))
    return found


def pack_compressed(integers: Integers, scheme: QuantizationScheme) -> dict[str, np.ndarray]:
    """The tensors of a layer, but for the scale of its inputs.

    Raises:
        ValueError: groups that are not neighbours, for which the layout has no place.
    """
    if integers.g_idx is not None:
        raise ValueError("got groups in another order, expected neighbours; store such layers as GPTQ")
    values = integers.values.numpy()
    found = {"weight_scale": integers.scales.numpy()}
    if scheme.stored_as is StoredAs.INT_QUANTIZED:
        return {**found, "weight": values}
    shape = np.array(values.shape, np.int64)
    return {**found, "weight_packed": pack_words(values, integers.bits), "weight_shape": shape}


def unpack_compressed(tensors: Mapping[str, np.ndarray], scheme: QuantizationScheme, inputs: int) -> Integers:
    """A layer from its tensors.

    Args:
        tensors: by the last part of the name.
        inputs: of the layer.
    """
    if scheme.stored_as is StoredAs.INT_QUANTIZED:
        values = tensors["weight"]
    else:
        values = unpack_words(tensors["weight_packed"], scheme.bits, inputs)
    scales = paddle.to_tensor(tensors["weight_scale"].astype(np.float32))
    return Integers(paddle.to_tensor(values), scales, scheme.group_size, scheme.bits)
