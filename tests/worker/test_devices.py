import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.broker import Broker
from store.clock import database_now
from store.database import Database
from store.exclusion import is_excluded
from store.hosts import list_hosts, uncordon_host
from store.settings import Settings
from tests.worker.fake_nvml import FakeDevice, driver
from worker import nvml
from worker.capacity import host_memory
from worker.devices import DeviceError, device_environment, host_devices
from worker.host import HostPresence

GPUS = [FakeDevice("GPU-aaa"), FakeDevice("GPU-bbb"), FakeDevice("GPU-ccc")]


def settings(devices: str) -> Settings:
    return Settings(devices=devices)  # pyright: ignore[reportCallIssue]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three GPUs."""
    with driver(monkeypatch, GPUS):
        yield


def indices_and_ids(devices: str, **environment: str) -> list[tuple]:
    return [(device["index"], device["uuid"]) for device in host_devices(settings(devices), environment)]


def test_cpu_slots_are_as_many_as_were_asked_for():
    assert [device["index"] for device in host_devices(settings("cpu:3"), {})] == [0, 1, 2]
    assert len(host_devices(settings("cpu"), {})) == 1
    assert host_devices(settings("cpu:0"), {}) == []


def test_cpu_slots_share_the_memory_of_the_host():
    sizes = [device["memory_bytes"] for device in host_devices(settings("cpu:3"), {})]
    assert sizes == [host_memory() // 3] * 3


def test_a_gpu_of_which_the_driver_says_little_is_offered_all_the_same(monkeypatch: pytest.MonkeyPatch):
    with driver(monkeypatch, [FakeDevice("GPU-aaa", "NVIDIA GB10", None, None, None)]):
        (device,) = host_devices(settings("gpu"), {})
        assert (device["memory_bytes"], device["compute_mode"]) == (None, None)
        assert nvml.uncorrected_errors() == {}


def test_a_gpu_that_takes_no_processes_is_an_error(monkeypatch: pytest.MonkeyPatch):
    with driver(monkeypatch, [FakeDevice("GPU-aaa"), FakeDevice("GPU-bbb", compute_mode=2)]):
        assert len(host_devices(settings("gpu:1"), {})) == 1
        with pytest.raises(DeviceError, match=r"GPU 1 \(GPU-bbb\) has the compute mode 'prohibited'"):
            host_devices(settings("gpu"), {})


@pytest.mark.usefixtures("gpus")
def test_gpus_are_those_that_the_driver_reports():
    assert indices_and_ids("gpu") == [(0, "GPU-aaa"), (1, "GPU-bbb"), (2, "GPU-ccc")]
    assert indices_and_ids("gpu:2") == [(0, "GPU-aaa"), (1, "GPU-bbb")]
    (first, *_) = host_devices(settings("gpu"), {})
    assert (first["name"], first["memory_bytes"]) == ("NVIDIA H200", 143771 << 20)
    assert (first["compute_mode"], nvml.driver_version()) == ("default", "570.172.08")


@pytest.mark.usefixtures("gpus")
def test_gpus_that_are_hidden_from_the_worker_are_not_offered():
    assert indices_and_ids("gpu", CUDA_VISIBLE_DEVICES="2,GPU-aaa") == [(0, "GPU-ccc"), (1, "GPU-aaa")]


@pytest.mark.usefixtures("gpus")
def test_fewer_gpus_than_named_are_an_error():
    with pytest.raises(DeviceError, match=r"got 'gpu:4', but 3 GPUs are visible"):
        host_devices(settings("gpu:4"), {})


def test_no_driver_means_no_gpu():
    with pytest.raises(DeviceError, match="0 GPUs are visible"):
        host_devices(settings("gpu"), {})


@pytest.mark.usefixtures("gpus")
def test_a_trainer_sees_its_gpus_by_their_uuids():
    def visible(indices: list[int], environment: dict[str, str]) -> str:
        return device_environment(settings("gpu"), indices, environment)["CUDA_VISIBLE_DEVICES"]

    assert visible([0, 2], {}) == "GPU-aaa,GPU-ccc"
    assert visible([0, 1], {"CUDA_VISIBLE_DEVICES": "2, GPU-aaa"}) == "GPU-ccc,GPU-aaa"


def test_a_process_on_a_cpu_slot_sees_no_gpu_and_gets_its_share_of_the_cores():
    cores = len(os.sched_getaffinity(0))
    whole = device_environment(settings("cpu:1"), [0], {})
    assert whole["CUDA_VISIBLE_DEVICES"] == ""
    assert whole["OMP_NUM_THREADS"] == str(cores)
    assert device_environment(settings(f"cpu:{cores}"), [0], {})["OMP_NUM_THREADS"] == "1"
    assert device_environment(settings(f"cpu:{8 * cores}"), [0], {})["OMP_NUM_THREADS"] == "1"
    assert device_environment(settings(f"cpu:{cores}"), list(range(cores)), {})["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in device_environment(settings("cpu:1"), [0], {"OMP_NUM_THREADS": "3"})


def test_a_host_tells_what_it_has_and_is_excluded_when_a_device_counts_more_memory_errors(
    database: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def seen() -> tuple[list[int | None], bool]:
        with database.reading() as session:
            (host,) = list_hosts(session)
            errors = [device.get("uncorrected_errors") for device in host.devices]
            return errors, is_excluded(host, database_now(session))

    mine = Settings(data_dir=tmp_path / "data", devices="gpu", host_name="host-a")  # pyright: ignore[reportCallIssue]
    first, second = FakeDevice("GPU-aaa", uncorrected=2), FakeDevice("GPU-bbb", uncorrected=None)
    with driver(monkeypatch, [first, second]):
        presence = HostPresence(mine, database)
        assert presence.report()
        assert seen() == ([None, None], False)
        with database.reading() as session:
            info = list_hosts(session)[0].info
        assert info["driver"] == "570.172.08"
        assert info["paddle"].startswith("3.")
        assert info["memory_bytes"] > 0
        assert presence.report()
        assert seen() == ([2, 0], True)
        with database.transaction() as session:
            uncordon_host(session, "host-a")
        again = HostPresence(mine, database)
        assert again.report()
        assert again.report()
        assert seen() == ([2, 0], False)
        first.uncorrected = 3
        assert again.report()
        assert seen() == ([3, 0], True)
        with database.reading() as session:
            assert list_hosts(session)[0].exclusion_reason == (
                "memory errors that could not be corrected (GPU-aaa: 3)"
            )
