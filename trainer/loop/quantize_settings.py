"""What the arguments of task quantize say, in the words of `trainer.quantization`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trainer.config.quantized_models import WHOLE_ROW, QuantizationScheme
from trainer.models import CausalLM, linear_layers
from trainer.models.passes import Pass
from trainer.quantization.inputs import is_named
from trainer.quantization.methods import Progress, quantize_awq, quantize_gptq, quantize_ptq
from trainer.quantization.observers import ActMethod, WeightMethod
from trainer.quantization.piecewise import PiecewiseSearch
from trainer.quantization.pulse import Pulse
from trainer.quantization.report import QuantizationReport
from trainer.quantization.settings import (
    AwqSettings,
    GptqSettings,
    PtqSettings,
    QuantType,
    ShiftSettings,
    SmoothSettings,
)
from trainer.quantization.shift import ShiftSampler

if TYPE_CHECKING:
    from trainer.config.schema import QuantizeConfig

#: Inputs that share a scale, the first that divides the inputs of all layers.
GROUP_SIZES = (128, 64, 32, 16, 8)

Settings = PtqSettings | GptqSettings | AwqSettings


def method_name(config: QuantizeConfig) -> str:
    """ptq, gptq or awq."""
    return next(name for name in ("ptq", "gptq", "awq") if getattr(config, f"do_{name}"))


def calibration_batches(config: QuantizeConfig) -> int:
    """How many batches the method looks at."""
    settings = settings_of(config, WHOLE_ROW)
    return settings.all_batches if isinstance(settings, PtqSettings) else settings.batches


def settings_of(config: QuantizeConfig, group_size: int) -> Settings:
    """The settings of the method that the config chooses.

    Args:
        config: it chooses exactly one.
        group_size: where weights have a scale for each group.
    """
    bits = 8 if config.quant_type == QuantType.WEIGHT_ONLY_INT8 else 4
    skip = tuple(config.skip_list_names)
    if config.do_awq:
        return AwqSettings(bits, group_size, config.auto_clip, config.awq_step, skip)
    weights = WeightMethod(config.weight_quant_method)
    if config.do_gptq:
        size = weights.group_size(group_size)
        return GptqSettings(bits, size, batches=config.gptq_step, skip=skip)
    return PtqSettings(
        kind=QuantType(config.quant_type),
        weight_method=weights,
        group_size=group_size,
        act_method=ActMethod(config.act_quant_method),
        batches=config.ptq_step,
        shift=_shift(config) if config.shift else None,
        smooth=_smooth(config) if config.smooth else None,
        auto_clip=config.auto_clip,
        skip=skip,
    )


def group_size_of(model: CausalLM, skip: Sequence[str]) -> int:
    """The largest of `GROUP_SIZES` that divides the inputs of all layers but the skipped; else the first."""
    layers = [layer for layer in linear_layers(model) if not is_named(layer.path, skip)]
    inputs = {int(layer.layer.weight.shape[0]) for layer in layers}
    return next((size for size in GROUP_SIZES if not any(count % size for count in inputs)), GROUP_SIZES[0])


def begin(
    model: CausalLM, batches: Sequence[Pass], settings: Settings, report: QuantizationReport, pulse: Pulse
) -> Iterator[Progress]:
    """Quantize the model layer by layer; see `trainer.quantization.methods`."""
    if isinstance(settings, PtqSettings):
        return quantize_ptq(model, batches, settings, report, pulse)
    if isinstance(settings, GptqSettings):
        return quantize_gptq(model, batches, settings, report, pulse)
    return quantize_awq(model, batches, settings, report, pulse)


def scheme_facts(scheme: QuantizationScheme) -> dict[str, object]:
    """How weights and inputs are rounded and stored, ready for JSON."""
    return {
        "stored_as": str(scheme.stored_as),
        "bits": scheme.bits,
        "group_size": scheme.group_size,
        "activations": scheme.activations,
        "act_order": scheme.act_order,
    }


def _shift(config: QuantizeConfig) -> ShiftSettings:
    return ShiftSettings(config.shift_all_linears, ShiftSampler(config.shift_sampler), config.shift_step)


def _smooth(config: QuantizeConfig) -> SmoothSettings:
    search = None
    if config.smooth_piecewise_search:
        search = PiecewiseSearch(
            config.smooth_k_piece,
            config.smooth_search_piece,
            config.search_alpha_min,
            config.search_alpha_max,
            config.search_scale_min,
            config.search_scale_max,
        )
    last_only = config.smooth_sampler == "none"
    return SmoothSettings(config.smooth_all_linears, search, last_only, config.smooth_step)
