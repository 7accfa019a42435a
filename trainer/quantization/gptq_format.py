"""The layout of GPTQ checkpoints, as AutoGPTQ, GPTQModel, transformers and vLLM read it.

A layer `name` of `[out, in]` has, with as many numbers in a 32-bit word as the bits allow:

* `name.qweight` int32 `[in * bits / 32, out]`: along the inputs, each raised by 2^(bits - 1),
* `name.qzeros` int32 `[groups, out * bits / 32]`: the zero points, 2^(bits - 1), less 1 except in version 2,
* `name.scales` float16 `[groups, out]`,
* `name.g_idx` int32 `[in]`: the group of each input,
* `name.bias`, if any, as before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle

from trainer.config.quantized_models import QuantizationScheme
from trainer.models.safetensors_file import TensorHeader
from trainer.quantization.formats import Integers, group_count
from trainer.quantization.packing import pack_words, unpack_words


def headers(outputs: int, inputs: int, scheme: QuantizationScheme) -> dict[str, TensorHeader]:
    """What files hold for a layer, by the last part of the name.

    Raises:
        ValueError: sizes that do not fill words.
    """
    per_word = 32 // scheme.bits
    if outputs % per_word or inputs % per_word:
        msg = f"got a layer of {inputs} inputs and {outputs} outputs, expected multiples of {per_word}"
        raise ValueError(msg)
    groups = group_count(inputs, scheme.group_size)
    return {
        "qweight": TensorHeader("I32", (inputs // per_word, outputs)),
        "qzeros": TensorHeader("I32", (groups, outputs // per_word)),
        "scales": TensorHeader("F16", (groups, outputs)),
        "g_idx": TensorHeader("I32", (inputs,)),
    }


def pack_gptq(integers: Integers, scheme: QuantizationScheme) -> dict[str, np.ndarray]:
    """The tensors of a layer; scales are rounded to float16 (see `Integers.with_half_scales`)."""
    outputs = integers.values.shape[0]
    groups = integers.scales.shape[1]
    zero = np.full((groups, outputs), -1 if scheme.zeros_are_lower else 0, np.int8)
    return {
        "qweight": pack_words(integers.values.numpy(), integers.bits).T,
        "qzeros": pack_words(zero, integers.bits),
        "scales": integers.with_half_scales().scales.numpy().T.astype(np.float16),
        "g_idx": integers.groups().numpy().astype(np.int32),
    }


def unpack_gptq(tensors: Mapping[str, np.ndarray], scheme: QuantizationScheme) -> Integers:
    """A layer from its tensors.

    Zero points may be stored in either way, whatever the scheme says: transformers writes those of version 2
    and calls them version 1 when it saves a model again, and no symmetric weights have others.

    Raises:
        ValueError: zero points that are not the middle, or groups out of range.
    """
    groups, outputs = tensors["scales"].shape
    zeros = unpack_words(tensors["qzeros"], scheme.bits, outputs)
    if zeros.min() != zeros.max() or zeros.flat[0] not in (-1, 0):
        raise ValueError("qzeros: got other zero points than the middle, expected symmetric weights")
    inputs = tensors["g_idx"].shape[0]
    g_idx = tensors["g_idx"].astype(np.int32)
    if g_idx.min() < 0 or g_idx.max() >= groups:
        raise ValueError(f"g_idx: got {g_idx.min()} to {g_idx.max()}, expected 0 to {groups - 1}")
    plain = (g_idx == np.arange(inputs) // (inputs // groups)).all()
    return Integers(
        paddle.to_tensor(unpack_words(tensors["qweight"].T, scheme.bits, inputs)),
        paddle.to_tensor(tensors["scales"].T.astype(np.float32)),
        scheme.group_size,
        scheme.bits,
        None if plain else paddle.to_tensor(g_idx),
    )
