"""The inputs of a decoder layer's linear layers while it is quantized, by groups of layers that share one."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np
from paddle import Tensor

from trainer.models.registry import LinearLayer
from trainer.quantization.awq import UNCLIPPED_ROLES, clipped
from trainer.quantization.calibration import Block, Walk
from trainer.quantization.errors import (
    NumberFormat,
    OutputError,
    dead_outputs,
    input_scale,
    mean_square,
    squared_error,
)
from trainer.quantization.formats import Integers, quantize_rows
from trainer.quantization.groups import InputGroup, Source
from trainer.quantization.observers import InputObserver, InputStatistics
from trainer.quantization.pulse import Tick
from trainer.quantization.report import LayerReport

#: Tokens on which searches and reports measure errors of outputs.
SAMPLE_TOKENS = 512


def is_named(path: str, names: Sequence[str]) -> bool:
    """Whether a layer is among names: the last part of its path, or a pattern of it such as `*.0.mlp.*`."""
    return any(name == path.rpartition(".")[2] or fnmatchcase(path, name) for name in names)


def wanted(layers: Sequence[LinearLayer], skip: Sequence[str]) -> tuple[LinearLayer, ...]:
    """The layers that are not named."""
    return tuple(layer for layer in layers if not is_named(layer.path, skip))


def observe(
    walk: Walk, block: Block, groups: Sequence[InputGroup], last_only: bool = False
) -> list[InputStatistics]:
    """Run a decoder layer over all batches and keep what is known of the input of each group.

    Args:
        walk: that the block is of.
        block: the decoder layer.
        groups: of its linear layers.
        last_only: the sample is of the last batch, not of all.
    """
    count = len(walk.packings)
    observers = {group.path: InputObserver(count, SAMPLE_TOKENS, last_only) for group in groups}

    def visit(path: str, x: Tensor, number: int) -> None:
        observers[path].add(x, walk.packings[number].lengths, number)

    block.inputs(visit, list(observers))
    return [observer.statistics() for observer in observers.values()]


class CalibratedInput:
    """The input of a group of layers, and what became of it.

    Attributes:
        group: the layers.
        statistics: of the input as it is by now.
        layers: those that are to be quantized.
        weights: what they are rounded to, by path, once `round` is called.
    """

    def __init__(
        self,
        group: InputGroup,
        statistics: InputStatistics,
        skip: Sequence[str],
        form: NumberFormat,
        batches: int,
    ) -> None:
        """Measure what rounding to nearest would do.

        Args:
            group: layers, not all of which are named in `skip`.
            statistics: of the input as it comes.
            skip: layers that stay as they are.
            form: how to round.
            batches: the first ones, which the range of inputs is observed in.
        """
        self.group, self.statistics = group, statistics
        self.layers = wanted(group.linears, skip)
        self.weights: dict[str, Integers] = {}
        self._form, self._batches = form, batches
        self._dead_inputs = statistics.dead_channels
        # Shifts and factors leave outputs as they are.
        self._power = {one.path: mean_square(statistics.sample, one.layer.weight) for one in self.layers}
        self._nearest = {one.path: self._error(one, self._rounded(one)) for one in self.layers}

    def error_of(self, source: Source, tick: Tick) -> _ErrorOfChannels:
        """The error of the group's outputs as a function of factors of the source's channels."""
        weights = [layer.layer.weight for layer in self.group.linears]
        return _ErrorOfChannels(OutputError(self.statistics, weights, self._form, tick), source)

    def divide(self, factors: np.ndarray) -> None:
        """Divide by factors `[channels]` of the source."""
        self.group.divide(factors)
        self.statistics = self.statistics.moved(factors=self.group.spread(factors))

    def subtract(self, by: np.ndarray) -> None:
        """Subtract shifts `[channels]` of the source."""
        self.group.subtract(by)
        self.statistics = self.statistics.moved(shifts=self.group.spread(by))

    def round(self, auto_clip: bool, tick: Tick) -> None:
        """Round the weights as they are by now, perhaps with narrower ranges where that helps."""
        for layer in self.layers:
            tick()
            narrow = auto_clip and layer.role not in UNCLIPPED_ROLES
            self.weights[layer.path] = self._clipped(layer, tick) if narrow else self._rounded(layer)

    @property
    def scale(self) -> float | None:
        """What 1 means in the input; None: it is not rounded."""
        act = self._form.act
        return None if act is None else input_scale(self.statistics.first(self._batches).absmax(act))

    def reports(self, tick: Tick) -> list[LayerReport]:
        """What became of each layer."""
        found = []
        for layer in self.layers:
            tick()
            found.append(
                LayerReport(
                    layer.path,
                    self._form.bits,
                    self._form.group_size,
                    self._error(layer, self.weights[layer.path]),
                    self._nearest[layer.path],
                    dead_inputs=self._dead_inputs,
                    dead_outputs=dead_outputs(layer.layer.weight),
                )
            )
        return found

    def _rounded(self, layer: LinearLayer) -> Integers:
        return quantize_rows(layer.layer.weight.t(), self._form.bits, self._form.group_size)

    def _clipped(self, layer: LinearLayer, tick: Tick) -> Integers:
        bits, group_size = self._form.bits, self._form.group_size
        weight = clipped(layer.layer.weight.t(), self.statistics.sample, bits, group_size, tick)
        return quantize_rows(weight, bits, group_size)

    def _error(self, layer: LinearLayer, weights: Integers) -> float:
        power = self._power[layer.path]
        if power <= 0:
            return 0.0
        return squared_error(self.statistics.sample, layer.layer.weight, weights, self.scale) / power


class _ErrorOfChannels:
    """An `OutputError` as a function of factors of a source's channels."""

    def __init__(self, error: OutputError, source: Source) -> None:
        self._error, self._owners = error, source.owners

    def __call__(self, factors: np.ndarray) -> float:
        return self._error(factors[self._owners])
