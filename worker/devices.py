"""The devices of this host, and which of them a trainer gets to see."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from store.settings import Settings
from worker import nvml
from worker.capacity import host_memory


class DeviceError(Exception):
    """The devices that the settings name are not there; the message says what to do."""


def device_kind(settings: Settings) -> str:
    """ "cpu" or "gpu"."""
    return settings.devices.partition(":")[0]


def host_devices(settings: Settings, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The devices that `settings.devices` names: one description each, "index" counts from 0.

    `memory_bytes` is the memory of a GPU (None: the driver does not say), or a slot's share of the host's. A
    GPU has a `uuid` and a `compute_mode` too.

    Raises: DeviceError when there are fewer GPUs than that, or one takes no processes.
    """
    kind, _, count = settings.devices.partition(":")
    if kind == "cpu":
        slots = int(count or 1)
        share = host_memory() // max(slots, 1)
        return [{"index": index, "name": "CPU slot", "memory_bytes": share} for index in range(slots)]
    found = _visible(environment)
    wanted = int(count) if count else len(found)
    if wanted > len(found) or not found:
        raise DeviceError(
            f"devices: got {settings.devices!r}, but {len(found)} GPUs are visible on this host. Install "
            "regatta[gpu] and the driver, or set REGATTA_DEVICES to what is there, for example cpu:1."
        )
    for gpu in found[:wanted]:
        if gpu["compute_mode"] == "prohibited":
            raise DeviceError(
                f"devices: GPU {gpu['id']} ({gpu['uuid']}) has the compute mode 'prohibited', in which it "
                "takes no processes. Set another one (nvidia-smi -c 0), or hide it by CUDA_VISIBLE_DEVICES."
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
        # numbers would mean other devices where drivers and CUDA do not count alike
        gpus = _visible(environment)
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[index]["uuid"] for index in indices)
    return variables


def _visible(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """The GPUs that CUDA_VISIBLE_DEVICES allows, in its order."""
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return nvml.devices()
    known = {name: gpu for gpu in nvml.devices() for name in (gpu["id"], gpu["uuid"])}
    return [known[name] for name in map(str.strip, value.split(",")) if name in known]
