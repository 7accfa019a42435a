"""Ways to quantize a model: PTQ, GPTQ and AWQ.

Each is an iterator over the decoder layers: after each step one more of them is quantized, in place, and in
the report. Whoever stops in between has a model that is quantized in part. Inputs of later layers are those
that the quantized ones before them give. No part of it draws random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from paddle import Tensor

from trainer.config.problems import ConfigError, Problem, TrainingError
from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.models import CausalLM, linear_layers
from trainer.models.passes import Pass
from trainer.models.registry import LinearLayer
from trainer.quantization import compressed_tensors, gptq_format
from trainer.quantization.awq import UNCLIPPED_ROLES, awq_factors, clipped
from trainer.quantization.calibration import Block, Walk
from trainer.quantization.errors import NumberFormat, OutputError, input_scale, mean_square, squared_error
from trainer.quantization.formats import Integers, quantize_rows
from trainer.quantization.gptq import Hessian, SingularHessianError, gptq_quantize
from trainer.quantization.groups import InputGroup, Source, input_groups
from trainer.quantization.model import quantize_model
from trainer.quantization.observers import InputObserver, InputStatistics
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

#: Tokens on which searches and reports measure errors of outputs.
_SAMPLE_TOKENS = 512


@dataclass(frozen=True)
class Progress:
    """How many of the decoder layers are quantized."""

    done: int
    layers: int


def quantize_ptq(
    model: CausalLM, batches: Sequence[Pass], settings: PtqSettings, report: QuantizationReport
) -> Iterator[Progress]:
    """Shift and smooth inputs where that is asked for, then round to nearest.

    Args:
        model: whole, see `Walk`; in float32 for the best results.
        batches: calibration data, `settings.all_batches` of them or fewer.
        settings: what to do.
        report: is added to.

    Raises:
        ConfigError: a layer does not fit the group size.
        ValueError: the model or the batches are none that can be calibrated.
    """
    _check(model, settings.scheme, settings.skip, report)
    walk = Walk(model, batches)
    last_only = settings.smooth is not None and settings.smooth.last_batch_only
    for block in walk:
        groups = _groups(model, block, settings.skip)
        for group in groups:
            _tell_what_is_not_done(group, settings, report)
        inputs = [
            _Input(group, found, settings.skip)
            for group, found in zip(groups, _observe(walk, block, groups, last_only), strict=True)
        ]
        form = _form_of(settings)
        nearest = _errors(inputs, form, settings.batches)
        for part in inputs:
            if settings.shift is not None:
                _shift(part, settings.shift)
            if settings.smooth is not None:
                _smooth(part, settings.smooth, form)
        weights, scales = {}, {}
        for part in inputs:
            weights |= _rounded(part, form, settings.auto_clip)
            if form.act is not None:
                absmax = part.statistics.first(settings.batches).absmax(form.act)
                scales |= dict.fromkeys(part.quantized, input_scale(absmax))
        after = _errors(inputs, form, settings.batches, weights)
        report.layers += [
            LayerReport(path, form.bits, form.group_size, after[path], nearest[path])
            for part in inputs
            for path in part.quantized
        ]
        quantize_model(model, weights, settings.scheme, scales or None)
        yield Progress(block.index + 1, len(walk))


def quantize_gptq(
    model: CausalLM, batches: Sequence[Pass], settings: GptqSettings, report: QuantizationReport
) -> Iterator[Progress]:
    """Quantize by GPTQ; arguments as for `quantize_ptq`.

    Raises:
        ConfigError: a layer does not fit the group size.
        TrainingError: the inputs of a layer are not finite.
        ValueError: the model or the batches are none that can be calibrated.
    """
    scheme = settings.scheme
    _check(model, scheme, settings.skip, report)
    walk = Walk(model, batches)
    for block in walk:
        groups = _groups(model, block, settings.skip)
        hessians = {group.path: Hessian(group.linears[0].layer.weight.shape[0]) for group in groups}
        block.inputs(lambda path, x, _, into=hessians: into[path].add(x), list(hessians))
        weights = {}
        for group in groups:
            hessian = hessians.pop(group.path).matrix()
            for layer in _wanted(group.linears, settings.skip):
                weights[layer.path] = _by_gptq(layer, hessian, settings, report)
        quantize_model(model, weights, scheme)
        yield Progress(block.index + 1, len(walk))


def quantize_awq(
    model: CausalLM, batches: Sequence[Pass], settings: AwqSettings, report: QuantizationReport
) -> Iterator[Progress]:
    """Quantize weights by AWQ; arguments as for `quantize_ptq`.

    Raises:
        ConfigError: a layer does not fit the group size.
        ValueError: the model or the batches are none that can be calibrated.
    """
    _check(model, settings.scheme, settings.skip, report)
    form = NumberFormat(settings.bits, settings.group_size)
    walk = Walk(model, batches)
    for block in walk:
        groups = _groups(model, block, settings.skip)
        inputs = [
            _Input(group, found, settings.skip)
            for group, found in zip(groups, _observe(walk, block, groups), strict=True)
        ]
        nearest = _errors(inputs, form, len(batches))
        for part in inputs:
            source = part.group.source
            if source is None:
                report.not_smoothed[part.group.path] = part.group.reason
                continue
            mean = source.mean(part.statistics.mean_abs)
            part.divide(awq_factors(mean, part.error_of(source, form)))
        weights = {}
        for part in inputs:
            weights |= _rounded(part, form, settings.auto_clip)
        after = _errors(inputs, form, len(batches), weights)
        report.layers += [
            LayerReport(path, form.bits, form.group_size, after[path], nearest[path])
            for part in inputs
            for path in part.quantized
        ]
        quantize_model(model, weights, settings.scheme)
        yield Progress(block.index + 1, len(walk))


def is_named(path: str, names: Sequence[str]) -> bool:
    """Whether a layer is among names: the last part of its path, or a pattern of it such as `*.0.mlp.*`."""
    return any(name == path.rpartition(".")[2] or fnmatchcase(path, name) for name in names)


class _Input:
    """The input of a group of layers, and what became of it.

    Attributes:
        statistics: of the input as it is by now.
        unshifted: of the input divided by factors only.
        quantized: paths of the layers that are to be quantized.
    """

    def __init__(self, group: InputGroup, statistics: InputStatistics, skip: Sequence[str]) -> None:
        self.group = group
        self.statistics = self.unshifted = statistics
        self.layers = _wanted(group.linears, skip)
        self.quantized = tuple(layer.path for layer in self.layers)

    def error_of(self, source: Source, form: NumberFormat) -> _ErrorOfChannels:
        """The error of the group's outputs as a function of factors of the source's channels."""
        return _ErrorOfChannels(OutputError(self.statistics, self.group.weight(), form), source)

    def divide(self, factors: np.ndarray) -> None:
        """Divide by factors `[channels]` of the source."""
        factors = at_most_one(factors)
        self.group.divide(factors)
        self.statistics = self.statistics.moved(factors=self.group.spread(factors))
        self.unshifted = self.unshifted.moved(factors=self.group.spread(factors))

    def subtract(self, by: np.ndarray) -> None:
        """Subtract shifts `[channels]` of the source."""
        self.group.subtract(by)
        self.statistics = self.statistics.moved(shifts=self.group.spread(by))


class _ErrorOfChannels:
    """An `OutputError` as a function of factors of a source's channels."""

    def __init__(self, error: OutputError, source: Source) -> None:
        self._error, self._owners = error, source.owners

    def __call__(self, factors: np.ndarray) -> float:
        return self._error(factors[self._owners])


def _form_of(settings: PtqSettings) -> NumberFormat:
    scheme = settings.scheme
    act = settings.act_method if scheme.activations else None
    return NumberFormat(scheme.bits, scheme.group_size, act)


def _observe(
    walk: Walk, block: Block, groups: Sequence[InputGroup], last_only: bool = False
) -> list[InputStatistics]:
    count = len(walk.packings)
    observers = {group.path: InputObserver(count, _SAMPLE_TOKENS, last_only) for group in groups}

    def visit(path: str, x: Tensor, number: int) -> None:
        observers[path].add(x, walk.packings[number].lengths, number)

    block.inputs(visit, list(observers))
    return [observer.statistics() for observer in observers.values()]


def _shift(part: _Input, settings: ShiftSettings) -> None:
    source = part.group.source
    if source is None or part.group.shift_reason or not (source.is_norm or settings.all_linears):
        return
    part.subtract(shifts(part.statistics.first(settings.batches), source, settings.sampler))


def _smooth(part: _Input, settings: SmoothSettings, form: NumberFormat) -> None:
    source = part.group.source
    if source is None or not (source.is_norm or settings.all_linears):
        return
    sizes = ChannelSizes.of(part.group, source, part.statistics.first(settings.batches))
    if settings.search is None:
        part.divide(sizes.factors(PLAIN_ALPHA))
    else:
        part.divide(settings.search.find(sizes, part.error_of(source, form)))


def _tell_what_is_not_done(group: InputGroup, settings: PtqSettings, report: QuantizationReport) -> None:
    """Put into the report what was asked for of an input and cannot be."""
    source = group.source
    by_norm = source is not None and source.is_norm
    if settings.smooth is not None and source is None:
        report.not_smoothed[group.path] = group.reason
    if settings.shift is not None and group.shift_reason and (by_norm or settings.shift.all_linears):
        report.not_shifted[group.path] = group.shift_reason


def _rounded(part: _Input, form: NumberFormat, auto_clip: bool) -> dict[str, Integers]:
    found = {}
    for layer in part.layers:
        weight = layer.layer.weight.astype("float32").t()
        if auto_clip and layer.role not in UNCLIPPED_ROLES:
            weight = clipped(weight, part.statistics.sample, form.bits, form.group_size)
        found[layer.path] = quantize_rows(weight, form.bits, form.group_size)
    return found


def _errors(
    inputs: Sequence[_Input],
    form: NumberFormat,
    batches: int,
    weights: Mapping[str, Integers] | None = None,
) -> dict[str, float]:
    """The relative error of each layer's outputs with these weights, by default rounded to nearest."""
    errors = {}
    for part in inputs:
        scale = None
        if form.act is not None:
            scale = input_scale(part.statistics.first(batches).absmax(form.act))
        for layer in part.layers:
            weight = layer.layer.weight.astype("float32")
            integers = (
                quantize_rows(weight.t(), form.bits, form.group_size)
                if weights is None
                else weights[layer.path]
            )
            error = squared_error(part.statistics.sample, weight, integers, scale)
            power = mean_square(part.unshifted.sample, weight)
            errors[layer.path] = error / power if power > 0 else 0.0
    return errors


def _by_gptq(
    layer: LinearLayer, hessian: Tensor, settings: GptqSettings, report: QuantizationReport
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
        )
    )
    return result.integers


def _wanted(layers: Sequence[LinearLayer], skip: Sequence[str]) -> tuple[LinearLayer, ...]:
    return tuple(layer for layer in layers if not is_named(layer.path, skip))


def _groups(model: CausalLM, block: Block, skip: Sequence[str]) -> list[InputGroup]:
    """Those with a layer to quantize."""
    return [group for group in input_groups(model, block) if _wanted(group.linears, skip)]


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
