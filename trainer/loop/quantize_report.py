"""What a quantization cost: errors layer by layer, perplexity and size before and after."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.config.problems import Problem
from trainer.events import EventWriter, finite
from trainer.files import write_json
from trainer.models.weights_load import weight_files
from trainer.quantization.report import QuantizationReport

log = logging.getLogger(__name__)

REPORT_FILE = "quantization_report.json"
_MOST_NAMED = 8


@dataclass
class Outcome:
    """A quantization from its beginning to its end.

    Attributes:
        method: ptq, gptq or awq.
        scheme: how numbers are rounded and stored.
        calibration: split, batches, rows and tokens that it looked at.
        bytes_before: of the weight files.
        seconds: that it took, without evaluations.
        layers: what became of each.
        before, after: metrics on the dev data; empty: nothing was evaluated.
    """

    method: str
    scheme: Mapping[str, object]
    calibration: Mapping[str, object]
    bytes_before: int
    seconds: float = 0.0
    layers: QuantizationReport = field(default_factory=QuantizationReport)
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)

    def metrics(self, bytes_after: int) -> dict[str, Any]:
        """The numbers of the result; `eval_*` are those of the quantized model."""
        errors = [layer.error for layer in self.layers.layers]
        before = {
            f"{name}_before": self.before[name]
            for name in ("eval_loss", "eval_ppl", "eval_accuracy")
            if name in self.before
        }
        return {
            "quantized_layers": len(errors),
            "skipped_layers": len(self.layers.skipped),
            "worst_layer_error": max(errors, default=0.0),
            "mean_layer_error": sum(errors) / len(errors) if errors else 0.0,
            "bytes_before": self.bytes_before,
            "bytes_after": bytes_after,
            "quantize_runtime": self.seconds,
            **before,
        }

    def write(self, directory: Path, bytes_after: int) -> None:
        """Write `quantization_report.json`."""
        content = {
            "method": self.method,
            "scheme": dict(self.scheme),
            "calibration": dict(self.calibration),
            "bytes": {"before": self.bytes_before, "after": bytes_after},
            "eval": {"before": self.before, "after": self.after},
            **self.layers.as_dict(),
        }
        write_json(directory / REPORT_FILE, finite(content))

    def tell(self, events: EventWriter, names: list[str]) -> None:
        """Say what was asked for and not done.

        Args:
            events: where warnings go.
            names: of skip_list_names that no layer has.
        """
        if names:
            msg = f"no linear layer of the decoder has the name {', '.join(names)}"
            events.warn(Problem(("skip_list_names",), msg, f"See the paths of layers in {REPORT_FILE}."))
        for name, reasons in (("smooth", self.layers.not_smoothed), ("shift", self.layers.not_shifted)):
            for reason in dict.fromkeys(reasons.values()):
                paths = [path for path, why in reasons.items() if why == reason]
                msg = f"it is not done for {paths[0]}"
                msg += f" and {len(paths) - 1} inputs like it" if len(paths) > 1 else ""
                events.warn(Problem((name,), f"{msg}: {reason}"))
        self._tell_of_dead_channels(events)
        if self.layers.layers:
            worst = max(self.layers.layers, key=lambda layer: layer.error)
            log.info(
                "%d layers quantized; the largest relative error is %.3g, of %s",
                *(len(self.layers.layers), worst.error, worst.path),
            )

    def _tell_of_dead_channels(self, events: EventWriter) -> None:
        inputs = {layer.path: layer.dead_inputs for layer in self.layers.layers}
        if text := _counts(inputs):
            hint = "Calibrate on records that use them, or look whether the model has lost them."
            msg = f"inputs that are zero on all calibration data: {text}"
            events.warn(Problem(("dataset_name_or_path",), msg, hint))
        outputs = {layer.path: layer.dead_outputs for layer in self.layers.layers}
        if text := _counts(outputs):
            hint = "Look whether the model has lost them; they stay zero."
            msg = f"outputs whose weights are all zero: {text}"
            events.warn(Problem(("model_name_or_path",), msg, hint))


def _counts(by_path: Mapping[str, int]) -> str:
    """`3 of model.layers.0.mlp.up_proj, 1 of …`; empty where all are 0."""
    found = [f"{count} of {path}" for path, count in by_path.items() if count]
    more = len(found) - _MOST_NAMED
    if more > 0:
        found = [*found[:_MOST_NAMED], f"and of {more} more layers, see {REPORT_FILE}"]
    return ", ".join(found)


def weight_bytes(folder: Path) -> int:
    """The size of a model's weight files."""
    return sum(path.stat().st_size for path in weight_files(folder))
