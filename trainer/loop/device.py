"""The device a run computes on."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import paddle

if TYPE_CHECKING:
    from trainer.config.schema import TrainingConfig

log = logging.getLogger(__name__)

#: Let kernels of a GPU add in the same order every time: without them a run that is resumed, or started again
#: with the same seed, does not repeat itself. The first holds for cuDNN and for the backward pass of flash
#: attention, the second for the gradient of the embedding.
DETERMINISTIC = {"FLAGS_cudnn_deterministic": True, "FLAGS_embedding_deterministic": 1}


def choose_device(config: TrainingConfig) -> str:
    """Set and return "gpu" when Paddle was built for one, one is visible and the config allows it, else
    "cpu". Computing on a GPU is made repeatable.
    """
    found = paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    device = "gpu" if found and config.device != "cpu" else "cpu"
    paddle.device.set_device(device)
    _set_flags(repeatable_flags(device, os.environ))
    return device


def repeatable_flags(device: str, environment: Mapping[str, str]) -> dict[str, bool | int]:
    """Paddle's flags that make runs on a device repeat themselves: those of `DETERMINISTIC` on a GPU, none on
    a CPU, whose kernels repeat themselves anyway. What the environment sets is left to it.
    """
    if device != "gpu":
        return {}
    return {name: value for name, value in DETERMINISTIC.items() if name not in environment}


def _set_flags(flags: Mapping[str, bool | int]) -> None:
    for name, value in flags.items():
        try:
            paddle.set_flags({name: value})
        except ValueError:  # this build of Paddle has no such flag, and computes all the same
            log.warning("this Paddle has no %s, so a run may not repeat itself to the last bit", name)
