"""The NVIDIA devices of this host, as the driver's management library (NVML) tells of them.

It is asked through `pynvml`, which the extra `gpu` installs; without that or a driver there are none.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

pynvml: Any = None
with suppress(ImportError):  # a host without GPUs does not need it
    pynvml = import_module("pynvml")

T = TypeVar("T")

_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
"""In the order of their numbers."""


@cache
def devices() -> list[dict[str, Any]]:
    """What does not change: `id` (a number as text), `uuid`, `name`, `memory_bytes`, `compute_mode`; the last
    two are None where the driver does not say.
    """
    if not _begin():
        return []
    return [_describe(index) for index in range(pynvml.nvmlDeviceGetCount())]


@cache
def driver_version() -> str | None:
    """The driver's version; None without a driver."""
    return pynvml.nvmlSystemGetDriverVersion() if _begin() else None


def uncorrected_errors() -> dict[str, int]:
    """How many memory errors of each device could not be corrected since the driver was loaded, by UUID; only
    for those that count them.
    """
    if not _begin():
        return {}
    found = {}
    for device in devices():
        count = _told(_errors_of, int(device["id"]))
        if count is not None:
            found[device["uuid"]] = count
    return found


@cache
def _begin() -> bool:
    """Whether the library can be asked."""
    if pynvml is None:
        return False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _describe(index: int) -> dict[str, Any]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = _told(pynvml.nvmlDeviceGetMemoryInfo, handle)
    mode = _told(pynvml.nvmlDeviceGetComputeMode, handle)
    return {
        "id": str(index),
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "name": pynvml.nvmlDeviceGetName(handle),
        "memory_bytes": None if memory is None else memory.total,
        "compute_mode": None if mode is None else _COMPUTE_MODES[mode],
    }


def _errors_of(index: int) -> int:
    return pynvml.nvmlDeviceGetTotalEccErrors(
        pynvml.nvmlDeviceGetHandleByIndex(index),
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )


def _told(ask: Callable[[Any], T], about: object) -> T | None:
    """The answer; None where the device has none."""
    try:
        return ask(about)
    except pynvml.NVMLError:
        return None
