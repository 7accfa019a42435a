"""The devices of this host, and which of them a trainer gets to see."""

import csv
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from store.settings import Settings
from worker.capacity import host_memory

_NVIDIA_SMI = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")
_MIB = 1 << 20


class DeviceError(Exception):
    """The devices that the settings name are not there; the message says what to do."""


def device_kind(settings: Settings) -> str:
    """ "cpu" or "gpu"."""
    return settings.devices.partition(":")[0]


def host_devices(settings: Settings, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The devices that `settings.devices` names: one description each, "index" counts from 0.

    `memory_bytes` is the memory of a GPU (None: the driver does not say), or a slot's share of the host's.

    Raises: DeviceError when there are fewer GPUs than that.
    """
    kind, _, count = settings.devices.partition(":")
    if kind == "cpu":
        slots = int(count or 1)
        share = host_memory() // max(slots, 1)
        return [{"index": index, "name": "CPU slot", "memory_bytes": share} for index in range(slots)]
    found = _visible(_gpus(), environment)
    wanted = int(count) if count else len(found)
    if wanted > len(found) or not found:
        raise DeviceError(
            f"devices: got {settings.devices!r}, but {len(found)} GPUs are visible on this host. "
            "Set REGATTA_DEVICES to what is there, for example cpu:1."
        )
    return [{"index": index, **gpu} for index, gpu in enumerate(found[:wanted])]


def device_environment(
    settings: Settings, indices: Sequence[int], environment: Mapping[str, str]
) -> dict[str, str]:
    """Variables that let a trainer see the given devices and no other, and each of its processes, of which
    there is one for a device, use its share of the cores.
    """
    slots = max(len(indices), int(settings.devices.partition(":")[2] or len(indices)))
    variables = {"PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
    if "OMP_NUM_THREADS" not in environment:
        cores = len(os.sched_getaffinity(0))
        variables["OMP_NUM_THREADS"] = str(max(1, cores // slots))
    if device_kind(settings) == "gpu":
        ids = _visible_ids(environment)
        visible = [ids[index] for index in indices] if ids is not None else map(str, indices)
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
    return variables


def _gpus() -> list[dict[str, Any]]:
    """What the NVIDIA driver reports; nothing where there is no driver."""
    try:
        output = subprocess.run(_NVIDIA_SMI, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = csv.reader(output.splitlines(), skipinitialspace=True)
    return [
        {"id": index, "uuid": uuid, "name": name, "memory_bytes": _bytes(memory)}
        for index, uuid, name, memory in rows
    ]


def _bytes(mebibytes: str) -> int | None:
    """Drivers of GPUs without memory of their own say that it is not available."""
    return int(mebibytes) * _MIB if mebibytes.isdigit() else None


def _visible(gpus: list[dict[str, Any]], environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Those that CUDA_VISIBLE_DEVICES allows, in its order."""
    ids = _visible_ids(environment)
    if ids is None:
        return gpus
    known = {name: gpu for gpu in gpus for name in (gpu["id"], gpu["uuid"])}
    return [known[name] for name in ids if name in known]


def _visible_ids(environment: Mapping[str, str]) -> list[str] | None:
    value = environment.get("CUDA_VISIBLE_DEVICES")
    return None if value is None else [part.strip() for part in value.split(",") if part.strip()]
