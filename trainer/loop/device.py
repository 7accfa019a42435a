"""The device a run computes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import paddle

if TYPE_CHECKING:
    from trainer.config.schema import RunConfig


def choose_device(config: RunConfig) -> str:
    """Set and return "gpu" when Paddle was built for one, one is visible and the config allows it, else
    "cpu".
    """
    found = paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    device = "gpu" if found and config.device != "cpu" else "cpu"
    paddle.device.set_device(device)
    return device
