"""How much memory a run takes."""

from __future__ import annotations

import resource
from pathlib import Path

import paddle

from trainer.parallel.communication import gather_objects
from trainer.parallel.layout import Layout

_STATUS = Path("/proc/self/status")


def peak_memory(layout: Layout) -> dict[str, int]:
    """The most of any process so far, in bytes.

    `peak_memory_bytes` is what it took from the device: on a GPU what Paddle's allocator had reserved, on a
    CPU the resident memory. `peak_tensor_bytes` is what of that were tensors.
    """
    if paddle.device.get_device().startswith("gpu"):
        here = paddle.device.cuda.max_memory_reserved(), paddle.device.cuda.max_memory_allocated()
    else:
        here = _peak_resident(), int(paddle.base.core.host_memory_stat_peak_value("Allocated", 0))
    taken, tensors = zip(*gather_objects(layout, here), strict=True)
    return {"peak_memory_bytes": max(taken), "peak_tensor_bytes": max(tensors)}


def memory_now() -> dict[str, int]:
    """What this process has taken from its device, as `peak_memory` counts it: `memory_bytes` now, and
    `peak_memory_bytes` at most so far.
    """
    if paddle.device.get_device().startswith("gpu"):
        cuda = paddle.device.cuda
        return {"memory_bytes": cuda.memory_reserved(), "peak_memory_bytes": cuda.max_memory_reserved()}
    now = _status("VmRSS") or _peak_resident()
    return {"memory_bytes": now, "peak_memory_bytes": max(now, _peak_resident())}


def _peak_resident() -> int:
    """Of this program; the resource usage counts what its process was before, too, so it is the second
    choice.
    """
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status(name: str) -> int | None:
    """Bytes that the system tells of this process; None where it does not."""
    try:
        lines = _STATUS.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
    except (OSError, StopIteration):
        return None
