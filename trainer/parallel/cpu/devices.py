"""Places in Fleet that refuse or misread the device name "cpu", although what follows works there.

A module is made to see a changed `paddle` or `core`: everything else in the process sees the real one.
"""

import sys
from typing import Any

import paddle
import paddle.distributed as distributed
from paddle.base import core

_ALIGNMENT_BYTES = 256
"""Of parameters in fused buffers; the same as on GPUs."""

_ANY_GPU = "gpu:cpu"
"""A name that passes for a GPU where only the beginning is looked at."""


class _Overlay:
    """A module seen with a few names replaced."""

    def __init__(self, real: Any, **names: Any) -> None:
        self.__dict__.update(names, _real=real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def accept_cpu() -> None:
    """Make pipelines, sharding, fused buffers and recomputation accept the CPU."""
    environment: Any = distributed.ParallelEnv
    environment._device_id = 0  # PipelineLayer reads it
    _accept_in_sharding()
    _accept_in_fused_buffers()
    _accept_in_recompute()


def _accept_in_sharding() -> None:
    """Stages 2 and 3 ask for a GPU and split its name at the colon."""
    from paddle.distributed.fleet.meta_parallel.sharding import (
        group_sharded_optimizer_stage2,
        group_sharded_stage3,
        group_sharded_storage,
        group_sharded_utils,
    )
    from paddle.distributed.sharding import group_sharded

    modules: list[Any] = [group_sharded_optimizer_stage2, group_sharded_stage3]
    for module in modules:
        module.core = _Overlay(core, is_compiled_with_cuda=lambda: True)
        module.paddle = _Overlay(paddle, get_device=lambda: "cpu:0")
    utils: Any = group_sharded_utils
    utils.paddle = _Overlay(
        paddle,
        set_device=lambda device: None,
        device=_Overlay(paddle.device, get_device=lambda: "cpu:0"),
    )
    entry: Any = group_sharded
    entry.paddle = _Overlay(
        paddle, device=_Overlay(paddle.device, get_all_custom_device_type=lambda: ["cpu"])
    )

    # On CPU `parameter.cpu()` is not a copy: its memory would be cleared with the parameter's.
    storage: Any = group_sharded_storage.ParamStorage
    add = storage.add_rank_params
    storage.add_rank_params = lambda self, params, align, convert_gpu=True: add(self, params, align, False)


def _accept_in_fused_buffers() -> None:
    """Sharding with split parameters and overlapping communication look the device up in a table."""
    from paddle.distributed.fleet.utils import tensor_fusion_helper

    tensor_fusion_helper.alignment["cpu"] = _ALIGNMENT_BYTES
    tensor_fusion_helper.__dict__["__current_device_type__"] = "cpu"


def _accept_in_recompute() -> None:
    """`PipelineLayer(recompute_interval=...)` asks for a GPU.

    The module is taken from `sys.modules`, because the package has a function of the same name.
    """
    module: Any = sys.modules["paddle.distributed.fleet.recompute.recompute_hybrid"]
    module.paddle = _Overlay(paddle, get_device=lambda: _ANY_GPU)
