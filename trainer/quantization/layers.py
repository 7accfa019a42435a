"""Linear layers with whole numbers for weights, and perhaps for inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import paddle
from paddle import Tensor

from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.models.packed import PackedLayer
from trainer.models.safetensors_file import TensorHeader
from trainer.quantization import compressed_tensors, gptq_format
from trainer.quantization.formats import WHOLE_ROW, Integers, rounded

INPUT_BITS = 8
# Sums of this many products of two 8-bit numbers are exact in float32, in whatever order they are added.
_EXACT_INPUTS = 2**24 // (128 * 128)


class QuantizedLinear(PackedLayer):
    """A linear layer with quantized weights; its inputs are `[tokens, in]`.

    With weights alone, `x @ dequantized^T` in the dtype of `x`. With inputs too, what a product of 8-bit
    numbers with 32-bit sums gives: `q = round(x / input_scale)` half to even and clipped to -128 … 127, the
    sums of `q * values` exactly, then times both scales in float32.

    Attributes:
        scheme: how the layer is stored.
        bias: `[out]`, or None; a parameter.
    """

    def __init__(
        self,
        integers: Integers,
        scheme: QuantizationScheme,
        bias: Tensor | None = None,
        input_scale: float | None = None,
    ) -> None:
        """A layer for some weights.

        Args:
            integers: the weights; in GPTQ's layout scales are rounded to float16, as files hold them.
            scheme: with the sizes of `integers`.
            bias: a parameter `[out]`.
            input_scale: what 1 means in the inputs; given if and only if `scheme.activations`.

        Raises:
            ValueError: these do not fit together.
        """
        super().__init__()
        if (integers.bits, integers.group_size) != (scheme.bits, scheme.group_size):
            got = f"{integers.bits} bits in groups of {integers.group_size}"
            raise ValueError(f"got {got}, the scheme says {scheme.bits} and {scheme.group_size}")
        if scheme.activations != (input_scale is not None):
            raise ValueError(
                f"input_scale: got {input_scale}, the scheme says activations {scheme.activations}"
            )
        if input_scale is not None and not 0 < input_scale < float("inf"):
            raise ValueError(f"input_scale: got {input_scale}, expected a number above 0")
        if scheme.stored_as is StoredAs.GPTQ:
            integers = integers.with_half_scales()
        self.scheme = scheme
        self.bias = bias
        self.register_buffer("values", integers.values)
        self.register_buffer("scales", integers.scales)
        if integers.g_idx is not None:
            self.register_buffer("g_idx", integers.g_idx)
        self._input_scale = None if input_scale is None else float(np.float32(input_scale))

    @property
    def integers(self) -> Integers:
        """The weights."""
        g_idx = self._buffers.get("g_idx")
        return Integers(self.values, self.scales, self.scheme.group_size, self.scheme.bits, g_idx)

    @property
    def input_scale(self) -> float | None:
        """What 1 means in the inputs; None: they are not quantized."""
        return self._input_scale

    @property
    def weight_count(self) -> int:
        return math.prod(self.values.shape)

    def forward(self, x: Tensor) -> Tensor:
        if self._input_scale is None:
            out = paddle.matmul(x, self.integers.dequantize(x.dtype), transpose_y=True)
        else:
            out = self._product_of_integers(x.astype("float32"), self._input_scale).astype(x.dtype)
        return out if self.bias is None else out + self.bias.astype(out.dtype)

    def packed_headers(self) -> Mapping[str, TensorHeader]:
        outputs, inputs = self.values.shape
        layout = gptq_format if self.scheme.stored_as is StoredAs.GPTQ else compressed_tensors
        return layout.headers(outputs, inputs, self.scheme)

    def packed_tensors(self) -> Mapping[str, np.ndarray]:
        if self.scheme.stored_as is StoredAs.GPTQ:
            return gptq_format.pack_gptq(self.integers, self.scheme)
        tensors = compressed_tensors.pack_compressed(self.integers, self.scheme)
        if self._input_scale is not None:
            tensors["input_scale"] = np.array([self._input_scale], np.float32)
        return tensors

    def _product_of_integers(self, x: Tensor, input_scale: float) -> Tensor:
        q = rounded(x / input_scale, INPUT_BITS)
        values = self.values.astype("float32")
        inputs, size = values.shape[1], self.scheme.group_size
        whole = size == WHOLE_ROW
        parts = []
        for group in range(self.scales.shape[1]):
            start, stop = (0, inputs) if whole else (group * size, (group + 1) * size)
            parts.append(_exact_sums(q, values, start, stop) * (self.scales[:, group] * input_scale))
        return sum(parts[1:], start=parts[0])


def _exact_sums(q: Tensor, values: Tensor, start: int, stop: int) -> Tensor:
    """Sums of products over some inputs, rounded to float32 once: `[tokens, out]`."""
    edges = [*range(start, stop, _EXACT_INPUTS), stop]
    parts = [
        paddle.matmul(q[:, first:end], values[:, first:end], transpose_y=True)
        for first, end in pairwise(edges)
    ]
    if len(parts) == 1:
        return parts[0]
    whole = [part.astype("int32") for part in parts]
    return sum(whole[1:], start=whole[0]).astype("float32")
