"""A driver's management library with devices of a test's choice: what `pynvml` has of it that is used."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from worker import nvml


class NVMLError(Exception):
    """What every call may raise."""


@dataclass
class FakeDevice:
    """One device; None: the driver does not say."""

    uuid: str
    name: str = "NVIDIA H200"
    memory: int | None = 143771 << 20
    compute_mode: int | None = 0
    uncorrected: int | None = 0


def _or_error(value: object) -> object:
    if value is None:
        raise NVMLError("Not Supported")
    return value


@contextmanager
def driver(monkeypatch: pytest.MonkeyPatch, devices: list[FakeDevice]) -> Iterator[None]:
    """Let the host have these devices."""
    library = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_MEMORY_ERROR_TYPE_UNCORRECTED=1,
        NVML_VOLATILE_ECC=0,
        nvmlInit=lambda: None,
        nvmlSystemGetDriverVersion=lambda: "570.172.08",
        nvmlDeviceGetCount=lambda: len(devices),
        nvmlDeviceGetHandleByIndex=lambda index: devices[index],
        nvmlDeviceGetUUID=lambda device: device.uuid,
        nvmlDeviceGetName=lambda device: device.name,
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(total=_or_error(device.memory)),
        nvmlDeviceGetComputeMode=lambda device: _or_error(device.compute_mode),
        nvmlDeviceGetTotalEccErrors=lambda device, kind, counter: _or_error(device.uncorrected),
    )
    with monkeypatch.context() as patched:
        patched.setattr(nvml, "pynvml", library)
        forget()
        yield
    forget()


def forget() -> None:
    """Let the library be asked anew."""
    for cached in (nvml.devices, nvml.driver_version, nvml._begin):
        cached.cache_clear()
