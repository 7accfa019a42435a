"""What quantizing a model did, layer by layer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class LayerReport:
    """One linear layer.

    Attributes:
        path: of the layer in the model.
        bits: of its weights now.
        group_size: inputs that share a scale; -1 = all.
        error: its relative error on calibration data: the sum of the squared differences that quantization
            makes to its outputs, over the sum of their squares. 0: the same outputs, 0.01: differences of a
            tenth of the outputs' size. Inputs are those that the quantized layers before give.
        rtn_error: the same, had everything only been rounded to nearest.
        damping: of GPTQ, what was used in the end; None: another method.
        dead_inputs: inputs that were always zero.
        dead_outputs: outputs whose weights are all zero.
    """

    path: str
    bits: int
    group_size: int
    error: float
    rtn_error: float
    damping: float | None = None
    dead_inputs: int = 0
    dead_outputs: int = 0


@dataclass
class QuantizationReport:
    """All layers, filled while a model is quantized.

    Attributes:
        layers: those that are quantized, in order.
        skipped: those that are not, and why, by path.
        not_smoothed: inputs that no factors were found for though they were asked for, and why, by the path
            of the first layer that has them.
        not_shifted: the same of shifts.
    """

    layers: list[LayerReport] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    not_smoothed: dict[str, str] = field(default_factory=dict)
    not_shifted: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)
