"""Ways to quantize a model: PTQ, GPTQ and AWQ.

Each is an iterator over the decoder layers: after each step one more of them is quantized, in place, and in
the report. Whoever stops in between has a model that is quantized in part. Inputs of later layers are those
that the quantized ones before them give. No part of it draws random numbers.

Memory beside the float model is that of the work of one decoder layer (see benchmarks/quantize_memory.py), so
what a layer needs is held by functions of one layer and is gone when the next one's turn comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paddle import Tensor

from trainer.config.problems import ConfigError, Problem, TrainingError
from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.models import CausalLM, linear_layers
from trainer.models.passes import Pass
from trainer.models.registry import LinearLayer
from trainer.quantization import compressed_tensors, gptq_format
from trainer.quantization.awq import awq_factors
from trainer.quantization.calibration import Block, Walk
from trainer.quantization.errors import NumberFormat, dead_outputs
from trainer.quantization.formats import Integers
from trainer.quantization.gptq import Hessian, SingularHessianError, gptq_quantize
from trainer.quantization.groups import InputGroup, input_groups
from trainer.quantization.inputs import CalibratedInput, is_named, observe, wanted
from trainer.quantization.model import quantize_model
from trainer.quantization.pulse import Pulse, Steps, Tick, no_pulse
from trainer.quantization.report import LayerReport, QuantizationReport
from trainer.quantization.settings import (
    AwqSettings,
    GptqSettings,
    PtqSettings,
    ShiftSettings,
    SmoothSettings,
)
from trainer.quantization.shift import shifts
from trainer.quantization.smooth import PLAIN_ALPHA, ChannelSizes, at_most_one


@dataclass(frozen=True)
class Progress:
    """How many of the decoder layers are quantized."""

    done: int
    layers: int


def quantize_ptq(
    model: CausalLM,
    batches: Sequence[Pass],
    settings: PtqSettings,
    report: QuantizationReport,
    pulse: Pulse = no_pulse,
) -> Iterator[Progress]:
    """Shift and smooth inputs where that is asked for, then round to nearest.

    Args:
        model: whole, see `Walk`; in float32 for the best results.
        batches: calibration data, `settings.all_batches` of them or fewer.
        settings: what to do.
        report: is added to.
        pulse: called all the time; it may raise, which leaves a model that is quantized in part.

    Raises:
        ConfigError: a layer does not fit the group size.
        ValueError: the model or the batches are none that can be calibrated.
    """
    _check(model, settings.scheme, settings.skip, report)
    steps = Steps(pulse)
    walk = Walk(model, batches, steps)
    for block in walk:
        _ptq_layer(model, walk, block, settings, report, steps)
        yield Progress(block.index + 1, len(walk))


def quantize_gptq(
    model: CausalLM,
    batches: Sequence[Pass],
    settings: GptqSettings,
    report: QuantizationReport,
    pulse: Pulse = no_pulse,
) -> Iterator[Progress]:
    """Quantize by GPTQ; arguments as for `quantize_ptq`.

    Raises:
        ConfigError: a layer does not fit the group size.
        TrainingError: the inputs of a layer are not finite.
        ValueError: the model or the batches are none that can be calibrated.
    """
    _check(model, settings.scheme, settings.skip, report)
    steps = Steps(pulse)
    walk = Walk(model, batches, steps)
    for block in walk:
        _gptq_layer(model, block, settings, report, steps)
        yield Progress(block.index + 1, len(walk))


def quantize_awq(
    model: CausalLM,
    batches: Sequence[Pass],
    settings: AwqSettings,
    report: QuantizationReport,
    pulse: Pulse = no_pulse,
) -> Iterator[Progress]:
    """Quantize weights by AWQ; arguments as for `quantize_ptq`.

    Raises:
        ConfigError: a layer does not fit the group size.
        ValueError: the model or the batches are none that can be calibrated.
    """
    _check(model, settings.scheme, settings.skip, report)
    steps = Steps(pulse)
    walk = Walk(model, batches, steps)
    for block in walk:
        _awq_layer(model, walk, block, settings, report, steps)
        yield Progress(block.index + 1, len(walk))


def _ptq_layer(
    model: CausalLM,
    walk: Walk,
    block: Block,
    settings: PtqSettings,
    report: QuantizationReport,
    steps: Steps,
) -> None:
    groups = _groups(model, block, settings.skip)
    for group in groups:
        _tell_what_is_not_done(group, settings, report)
    form = _form_of(settings)
    last_only = settings.smooth is not None and settings.smooth.last_batch_only
    with steps.of_layer(1 + 2 * len(groups)):
        found = observe(walk, block, groups, last_only)
        steps.step()
        inputs = []
        for group in groups:
            inputs.append(CalibratedInput(group, found.pop(0), settings.skip, form, settings.batches))
            steps()
        for part in inputs:
            if settings.shift is not None:
                _shift(part, settings.shift)
            if settings.smooth is not None:
                _smooth(part, settings.smooth, steps)
            steps.step()
        _round_all(model, inputs, settings.scheme, settings.auto_clip, report, steps)


def _gptq_layer(
    model: CausalLM, block: Block, settings: GptqSettings, report: QuantizationReport, steps: Steps
) -> None:
    groups = _groups(model, block, settings.skip)
    hessians = {group.path: Hessian(group.linears[0].layer.weight.shape[0]) for group in groups}
    weights = {}
    with steps.of_layer(1 + sum(len(wanted(group.linears, settings.skip)) for group in groups)):
        block.inputs(lambda path, x, _: hessians[path].add(x, steps), list(hessians))
        steps.step()
        for group in groups:
            hessian = hessians.pop(group.path).matrix()
            for layer in wanted(group.linears, settings.skip):
                weights[layer.path] = _by_gptq(layer, hessian, settings, report, steps)
                steps.step()
        quantize_model(model, weights, settings.scheme)


def _awq_layer(
    model: CausalLM,
    walk: Walk,
    block: Block,
    settings: AwqSettings,
    report: QuantizationReport,
    steps: Steps,
) -> None:
    groups = _groups(model, block, settings.skip)
    form = NumberFormat(settings.bits, settings.group_size)
    with steps.of_layer(1 + 2 * len(groups)):
        found = observe(walk, block, groups)
        steps.step()
        inputs = []
        for group in groups:
            inputs.append(CalibratedInput(group, found.pop(0), settings.skip, form, len(walk.packings)))
            steps()
        for part in inputs:
            source = part.group.source
            if source is None:
                report.not_smoothed[part.group.path] = part.group.reason
            else:
                mean = source.mean(part.statistics.mean_abs)
                part.divide(at_most_one(awq_factors(mean, part.error_of(source, steps))))
            steps.step()
        _round_all(model, inputs, settings.scheme, settings.auto_clip, report, steps)


def _round_all(
    model: CausalLM,
    inputs: Sequence[CalibratedInput],
    scheme: QuantizationScheme,
    auto_clip: bool,
    report: QuantizationReport,
    steps: Steps,
) -> None:
    """Round what is prepared, and put it into the model and the report."""
    scales = {}
    for part in inputs:
        part.round(auto_clip, steps)
        if part.scale is not None:
            scales |= dict.fromkeys(part.weights, part.scale)
        report.layers += part.reports(steps)
        steps.step()
    weights = {path: integers for part in inputs for path, integers in part.weights.items()}
    quantize_model(model, weights, scheme, scales or None)


def _form_of(settings: PtqSettings) -> NumberFormat:
    scheme = settings.scheme
    act = settings.act_method if scheme.activations else None
    return NumberFormat(scheme.bits, scheme.group_size, act)


def _shift(part: CalibratedInput, settings: ShiftSettings) -> None:
    source = part.group.source
    if source is None or part.group.shift_reason or not (source.is_norm or settings.all_linears):
        return
    part.subtract(shifts(part.statistics.first(settings.batches), source, settings.sampler))


def _smooth(part: CalibratedInput, settings: SmoothSettings, tick: Tick) -> None:
    source = part.group.source
    if source is None or not (source.is_norm or settings.all_linears):
        return
    sizes = ChannelSizes.of(part.group, source, part.statistics.first(settings.batches))
    if settings.search is None:
        factors = sizes.factors(PLAIN_ALPHA)
    else:
        factors = settings.search.find(sizes, part.error_of(source, tick))
    part.divide(at_most_one(factors))


def _tell_what_is_not_done(group: InputGroup, settings: PtqSettings, report: QuantizationReport) -> None:
    """Put into the report what was asked for of an input and cannot be."""
    source = group.source
    by_norm = source is not None and source.is_norm
    if settings.smooth is not None and source is None:
        report.not_smoothed[group.path] = group.reason
    if settings.shift is not None and group.shift_reason and (by_norm or settings.shift.all_linears):
        report.not_shifted[group.path] = group.shift_reason


def _by_gptq(
    layer: LinearLayer, hessian: Tensor, settings: GptqSettings, report: QuantizationReport, tick: Tick
) -> Integers:
    try:
        result = gptq_quantize(
            layer.layer.weight.t(),
            hessian,
            settings.bits,
            settings.group_size,
            settings.damping,
            settings.block_size,
            settings.act_order,
            half=True,
            tick=tick,
        )
    except SingularHessianError as error:
        msg = f"GPTQ failed at {layer.path}: {error}; its inputs on the calibration data are not finite"
        raise TrainingError(msg) from error
    report.layers.append(
        LayerReport(
            layer.path,
            settings.bits,
            settings.group_size,
            result.error,
            result.rtn_error,
            result.damping,
            result.dead_inputs,
            dead_outputs(layer.layer.weight),
        )
    )
    return result.integers


def _groups(model: CausalLM, block: Block, skip: Sequence[str]) -> list[InputGroup]:
    """Those with a layer to quantize."""
    return [group for group in input_groups(model, block) if wanted(group.linears, skip)]


def _check(
    model: CausalLM, scheme: QuantizationScheme, skip: Sequence[str], report: QuantizationReport
) -> None:
    """Find layers that do not fit before anything is done, and put skipped ones into the report."""
    layout = gptq_format if scheme.stored_as is StoredAs.GPTQ else compressed_tensors
    problems = []
    for layer in linear_layers(model):
        if is_named(layer.path, skip):
            report.skipped[layer.path] = "named in skip_list_names"
            continue
        inputs, outputs = layer.layer.weight.shape
        try:
            layout.headers(outputs, inputs, scheme)
        except ValueError as error:
            problems.append(
                Problem(
                    ("quantization", layer.path),
                    f"got {inputs} inputs and {outputs} outputs: {error}",
                    "Choose a group size that divides the inputs, or name the layer in skip_list_names.",
                )
            )
    if problems:
        raise ConfigError(problems)
