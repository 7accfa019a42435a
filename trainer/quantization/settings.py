"""What can be set about each way to quantize a model; plain values, checked where configs are read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainer.config.quantized_models import WHOLE_ROW, QuantizationScheme, StoredAs
from trainer.quantization.observers import ActMethod, WeightMethod
from trainer.quantization.piecewise import PiecewiseSearch
from trainer.quantization.shift import ShiftSampler


class QuantType(StrEnum):
    """What PTQ rounds: weights and inputs to 8 bits, or weights alone."""

    A8W8 = "a8w8"
    WEIGHT_ONLY_INT8 = "weight_only_int8"
    WEIGHT_ONLY_INT4 = "weight_only_int4"


@dataclass(frozen=True)
class ShiftSettings:
    """How inputs are shifted.

    Attributes:
        all_linears: not only inputs that come from a norm, but also those of the attention output.
        sampler: how shifts are found.
        batches: the first ones are looked at.
    """

    all_linears: bool = False
    sampler: ShiftSampler = ShiftSampler.EMA
    batches: int = 32


@dataclass(frozen=True)
class SmoothSettings:
    """How inputs are smoothed.

    Attributes:
        all_linears: not only inputs that come from a norm, but all that can be without a new operation.
        search: the piecewise search; None: plain SmoothQuant.
        last_batch_only: the search measures errors on tokens of the last batch, not of all batches.
        batches: the sizes of channels are those of the first ones.
    """

    all_linears: bool = False
    search: PiecewiseSearch | None = None
    last_batch_only: bool = False
    batches: int = 32


@dataclass(frozen=True)
class PtqSettings:
    """Post-training quantization by rounding to nearest.

    Attributes:
        kind: what is rounded.
        weight_method: what has a scale.
        group_size: of `WeightMethod.GROUPWISE`.
        act_method: how ranges of inputs are observed; only of `QuantType.A8W8`.
        batches: the first ones are looked at for these ranges.
        shift, smooth: what is done before; None: nothing. Shifting comes first.
        auto_clip: narrow the ranges of weights where that helps.
        skip: layers that stay as they are, see `is_named`.
    """

    kind: QuantType = QuantType.A8W8
    weight_method: WeightMethod = WeightMethod.CHANNEL_WISE
    group_size: int = 128
    act_method: ActMethod = ActMethod.AVG
    batches: int = 32
    shift: ShiftSettings | None = None
    smooth: SmoothSettings | None = None
    auto_clip: bool = False
    skip: tuple[str, ...] = ()

    @property
    def scheme(self) -> QuantizationScheme:
        """How the layers are stored."""
        group_size = self.weight_method.group_size(self.group_size)
        if self.kind is QuantType.A8W8:
            return QuantizationScheme(StoredAs.INT_QUANTIZED, 8, group_size, activations=True)
        bits = 8 if self.kind is QuantType.WEIGHT_ONLY_INT8 else 4
        return QuantizationScheme(StoredAs.PACK_QUANTIZED, bits, group_size)

    @property
    def all_batches(self) -> int:
        """How many batches any part of it looks at."""
        return max(self.batches, *(part.batches for part in (self.shift, self.smooth) if part is not None), 0)


@dataclass(frozen=True)
class GptqSettings:
    """GPTQ; see `gptq_quantize`.

    Attributes:
        batches: how many to calibrate with.
        skip: layers that stay as they are, see `is_named`.
    """

    bits: int = 4
    group_size: int = WHOLE_ROW
    damping: float = 0.01
    block_size: int = 128
    act_order: bool = True
    batches: int = 8
    skip: tuple[str, ...] = ()

    @property
    def scheme(self) -> QuantizationScheme:
        """How the layers are stored."""
        return QuantizationScheme(
            StoredAs.GPTQ, self.bits, self.group_size, act_order=self.act_order, damping=self.damping
        )


@dataclass(frozen=True)
class AwqSettings:
    """AWQ.

    Attributes:
        batches: how many to calibrate with.
        auto_clip: narrow the ranges of weights where that helps.
        skip: layers that stay as they are, see `is_named`.
    """

    bits: int = 4
    group_size: int = 128
    auto_clip: bool = False
    batches: int = 8
    skip: tuple[str, ...] = ()

    @property
    def scheme(self) -> QuantizationScheme:
        """How the layers are stored."""
        return QuantizationScheme(StoredAs.PACK_QUANTIZED, self.bits, self.group_size)
