"""Task export: a model becomes a static graph."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.tools.export import export_model

if TYPE_CHECKING:
    from trainer.config.schema import ExportConfig
    from trainer.events import EventWriter

log = logging.getLogger(__name__)


def export(config: ExportConfig, events: EventWriter, should_stop: Callable[[], bool]) -> dict[str, Any]:
    """Run the task, in one step.

    Returns:
        The fields of the ``result`` event; see `trainer.tools.export.Exported` for the metrics.

    Raises:
        DataError: the model cannot be used.
        TrainingError: the graph gives other logits than the model.
    """
    import paddle

    paddle.device.set_device("cpu")
    output = Path(config.output_dir).resolve()
    if should_stop():
        return {"path": str(output), "metrics": {}, "stopped": True}
    exported = export_model(Path(config.model_name_or_path), output)
    events.write("progress", step=1, total_steps=1, epoch=1.0, total_epochs=1.0)
    log.info("the graph gives the model's logits up to %.3g of the largest one", exported.max_difference)
    return {"path": str(output), "metrics": asdict(exported), "stopped": False}
