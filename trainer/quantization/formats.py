"""Whole numbers with scales in place of a weight matrix. Knows no model and no file.

Everywhere: symmetric, without a zero point; a value is `round(weight / scale)`, rounded half to even, clipped
to what the bits hold (-128 … 127, -8 … 7). A row is one output, so matrices are `[out, in]` as on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import paddle
from paddle import Tensor

from trainer.config.quantized_models import WHOLE_ROW

#: The sizes of numbers that there are.
BITS = (4, 8)
# Work on a matrix is done for such a share of its rows at a time, so that what is between takes little
# memory; with fewer rows than these it would be slow.
_ROW_BLOCKS = 16
_FEWEST_ROWS = 32


@dataclass(frozen=True)
class Integers:
    """A weight matrix in whole numbers.

    Attributes:
        values: int8 `[out, in]`; of 4 bits too, -8 … 7.
        scales: float32 `[out, groups]`; a group of inputs of each row has one.
        group_size: inputs in a group; `WHOLE_ROW`: all of them.
        bits: 4 or 8.
        g_idx: int32 `[in]`, the group of each input, where neighbours are not in the same one (GPTQ with
            activation order); None: input `j` is in group `j // group_size`.
    """

    values: Tensor
    scales: Tensor
    group_size: int
    bits: int
    g_idx: Tensor | None = None

    def __post_init__(self) -> None:
        """Check that the parts fit.

        Raises:
            ValueError: they do not.
        """
        outputs, inputs = self.values.shape
        expected = [outputs, group_count(inputs, self.group_size)]
        if list(self.scales.shape) != expected:
            raise ValueError(f"scales: got shape {list(self.scales.shape)}, expected {expected}")
        limits(self.bits)
        if self.g_idx is not None and list(self.g_idx.shape) != [inputs]:
            raise ValueError(f"g_idx: got shape {list(self.g_idx.shape)}, expected [{inputs}]")

    def groups(self) -> Tensor:
        """The group of each input, int32 `[in]`."""
        return plain_groups(self.values.shape[1], self.group_size) if self.g_idx is None else self.g_idx

    def rows(self, start: int, stop: int) -> Integers:
        """Some of the outputs."""
        return replace(self, values=self.values[start:stop], scales=self.scales[start:stop])

    def dequantize(self, dtype: paddle.dtype = paddle.float32) -> Tensor:
        """The weights that these numbers stand for, `[out, in]`: value times scale, rounded to `dtype`."""
        return self._dequantized().astype(dtype)

    def with_half_scales(self) -> Integers:
        """The same numbers with scales as float16 holds them, which is how GPTQ files store scales."""
        return replace(self, scales=half_scales(self.scales))

    def _dequantized(self) -> Tensor:
        values = self.values.astype("float32")
        if self.scales.shape[1] == 1:
            return values * self.scales
        if self.g_idx is not None:
            return values * paddle.index_select(self.scales, self.g_idx, axis=1)
        outputs, groups = self.scales.shape
        return (values.reshape([outputs, groups, -1]) * self.scales.unsqueeze(-1)).reshape([outputs, -1])


@paddle.no_grad()
def quantize_rows(
    weight: Tensor, bits: int, group_size: int = WHOLE_ROW, scales: Tensor | None = None
) -> Integers:
    """Weights rounded to the nearest whole numbers.

    Args:
        weight: floating point `[out, in]`.
        bits: 4 or 8.
        group_size: see `Integers`.
        scales: float32 `[out, groups]`; by default `absmax_scales`.

    Raises:
        ValueError: bits or group size that do not fit.
    """
    outputs, inputs = weight.shape
    if scales is None:
        scales = absmax_scales(weight, bits, group_size)
    groups = group_count(inputs, group_size)
    values = paddle.empty([outputs, inputs], "int8")
    for start, stop in row_blocks(outputs):
        grouped = weight[start:stop].astype("float32").reshape([stop - start, groups, -1])
        whole = rounded(grouped / scales[start:stop].unsqueeze(-1), bits)
        values[start:stop] = whole.reshape([stop - start, inputs]).astype("int8")
    return Integers(values, scales, group_size, bits)


@paddle.no_grad()
def absmax_scales(weight: Tensor, bits: int, group_size: int = WHOLE_ROW) -> Tensor:
    """Scales with which the largest weight of each group becomes the largest number, float32 `[out, groups]`.

    A group of zeros has the scale 1.
    """
    outputs, inputs = weight.shape
    groups = group_count(inputs, group_size)
    largest = []
    for start, stop in row_blocks(outputs):
        grouped = weight[start:stop].astype("float32").reshape([stop - start, groups, -1])
        largest.append(grouped.abs().max(axis=-1))
    return scales_of(paddle.concat(largest), bits)


def scales_of(absmax: Tensor, bits: int) -> Tensor:
    """Scales with which the largest absolute values, float32, become the largest number; 1 for 0."""
    scales = absmax / limits(bits)[1]
    return paddle.where(scales > 0, scales, paddle.ones_like(scales))


def row_blocks(rows: int) -> Iterator[tuple[int, int]]:
    """Start and stop of rows that are worked on together, in a matrix with so many of them."""
    step = max(_FEWEST_ROWS, -(-rows // _ROW_BLOCKS))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


def half_scales(scales: Tensor) -> Tensor:
    """Scales rounded to what float16 holds, none of them to zero or infinity; float32."""
    finest = np.finfo(np.float16)
    kept = scales.clip(float(finest.smallest_subnormal), float(finest.max))
    return kept.astype("float16").astype("float32")


def rounded(x: Tensor, bits: int) -> Tensor:
    """The nearest whole numbers that `bits` hold, half to even, in the dtype of `x`."""
    lowest, highest = limits(bits)
    return paddle.round(x).clip(lowest, highest)


def limits(bits: int) -> tuple[int, int]:
    """The lowest and the highest number of `bits`: (-128, 127) or (-8, 7)."""
    if bits not in BITS:
        raise ValueError(f"bits: got {bits}, expected one of {BITS}")
    half = 1 << (bits - 1)
    return -half, half - 1


def group_count(inputs: int, group_size: int) -> int:
    """Groups in a row of `inputs`."""
    if group_size == WHOLE_ROW:
        return 1
    if group_size < 1 or inputs % group_size:
        raise ValueError(f"group_size: got {group_size}, expected -1 or a divisor of {inputs} inputs")
    return inputs // group_size


def plain_groups(inputs: int, group_size: int) -> Tensor:
    """The group of each input where neighbours are in the same one, int32 `[in]`."""
    size = inputs // group_count(inputs, group_size)
    return paddle.arange(inputs, dtype="int32") // size
