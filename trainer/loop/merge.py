"""Task merge: an adapter and its base become one model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.tools.merge import MergeStoppedError, merge_adapter

if TYPE_CHECKING:
    from trainer.config.schema import MergeConfig
    from trainer.events import EventWriter

log = logging.getLogger(__name__)

#: Tensors between two progress events.
_REPORT_EVERY = 20


def merge(config: MergeConfig, events: EventWriter, should_stop: Callable[[], bool]) -> dict[str, Any]:
    """Run the task; a step of its progress is a tensor.

    Returns:
        The fields of the ``result`` event; `metrics` has the numbers of tensors, of those that the adapter
        changed, and of bytes. Stopped, the folder holds no whole model.

    Raises:
        DataError: the adapter or its base model cannot be used.
    """
    import paddle

    paddle.device.set_device("cpu")  # as much memory as the model takes may be there alone
    output = Path(config.output_dir).resolve()

    def progress(done: int, total: int) -> None:
        if done == 1 or done == total or done % _REPORT_EVERY == 0:
            events.write("progress", step=done, total_steps=total, epoch=done / total, total_epochs=1.0)

    try:
        merged = merge_adapter(
            Path(config.lora_path), output, config.model_name_or_path, config.dtype, progress, should_stop
        )
    except MergeStoppedError:
        log.info("stopped before the model was complete")
        return {"path": str(output), "metrics": {}, "stopped": True}
    log.info("merged: %d of %d tensors were changed by the adapter", merged.changed, merged.tensors)
    return {"path": str(output), "metrics": asdict(merged), "stopped": False}
