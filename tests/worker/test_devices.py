import os
from pathlib import Path

import pytest

from store.settings import Settings
from worker.capacity import host_memory
from worker.devices import DeviceError, device_environment, host_devices

NVIDIA_SMI = """#!/bin/sh
echo '0, GPU-aaa, NVIDIA H200, 143771'
echo '1, GPU-bbb, NVIDIA H200, 143771'
echo '2, GPU-ccc, NVIDIA H200, 143771'
"""


def settings(devices: str) -> Settings:
    return Settings(devices=devices)  # pyright: ignore[reportCallIssue]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi that reports three GPUs."""
    (tmp_path / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.fixture
def no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def indices_and_ids(devices: str, **environment: str) -> list[tuple]:
    return [(device["index"], device["uuid"]) for device in host_devices(settings(devices), environment)]


def test_cpu_slots_are_as_many_as_were_asked_for():
    assert [device["index"] for device in host_devices(settings("cpu:3"), {})] == [0, 1, 2]
    assert len(host_devices(settings("cpu"), {})) == 1
    assert host_devices(settings("cpu:0"), {}) == []


def test_cpu_slots_share_the_memory_of_the_host():
    sizes = [device["memory_bytes"] for device in host_devices(settings("cpu:3"), {})]
    assert sizes == [host_memory() // 3] * 3


def test_a_gpu_whose_driver_names_no_memory_is_offered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho '0, GPU-aaa, NVIDIA GB10, [N/A]'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (device,) = host_devices(settings("gpu"), {})
    assert device["memory_bytes"] is None


@pytest.mark.usefixtures("driver")
def test_gpus_are_those_that_the_driver_reports():
    assert indices_and_ids("gpu") == [(0, "GPU-aaa"), (1, "GPU-bbb"), (2, "GPU-ccc")]
    assert indices_and_ids("gpu:2") == [(0, "GPU-aaa"), (1, "GPU-bbb")]
    (first, *_) = host_devices(settings("gpu"), {})
    assert (first["name"], first["memory_bytes"]) == ("NVIDIA H200", 143771 << 20)


@pytest.mark.usefixtures("driver")
def test_gpus_that_are_hidden_from_the_worker_are_not_offered():
    assert indices_and_ids("gpu", CUDA_VISIBLE_DEVICES="2,GPU-aaa") == [(0, "GPU-ccc"), (1, "GPU-aaa")]


@pytest.mark.usefixtures("driver")
def test_fewer_gpus_than_named_are_an_error():
    with pytest.raises(DeviceError, match=r"got 'gpu:4', but 3 GPUs are visible"):
        host_devices(settings("gpu:4"), {})


@pytest.mark.usefixtures("no_driver")
def test_no_driver_means_no_gpu():
    with pytest.raises(DeviceError, match="0 GPUs are visible"):
        host_devices(settings("gpu"), {})


def test_a_trainer_sees_its_gpus_by_the_names_of_the_host():
    def visible(indices: list[int], environment: dict[str, str]) -> str:
        return device_environment(settings("gpu:4"), indices, environment)["CUDA_VISIBLE_DEVICES"]

    assert visible([1, 3], {}) == "1,3"
    assert visible([1, 2], {"CUDA_VISIBLE_DEVICES": "4,5,GPU-x"}) == "5,GPU-x"


def test_a_process_on_a_cpu_slot_sees_no_gpu_and_gets_its_share_of_the_cores():
    cores = len(os.sched_getaffinity(0))
    whole = device_environment(settings("cpu:1"), [0], {})
    assert whole["CUDA_VISIBLE_DEVICES"] == ""
    assert whole["OMP_NUM_THREADS"] == str(cores)
    assert device_environment(settings(f"cpu:{cores}"), [0], {})["OMP_NUM_THREADS"] == "1"
    assert device_environment(settings(f"cpu:{8 * cores}"), [0], {})["OMP_NUM_THREADS"] == "1"
    assert device_environment(settings(f"cpu:{cores}"), list(range(cores)), {})["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in device_environment(settings("cpu:1"), [0], {"OMP_NUM_THREADS": "3"})
