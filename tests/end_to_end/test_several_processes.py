"""Jobs of several processes through the whole service: their devices, their logs, and the death of a rank."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.service import Service, running_service

SLOTS = 2


@pytest.fixture(scope="module")
def service(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose host offers as many CPU slots as the jobs here have processes."""
    with running_service(tmp_path_factory.mktemp("service"), root, devices=f"cpu:{SLOTS}") as up:
        yield up


def config(model: Path, data: Path, **changes: Any) -> dict[str, Any]:
    return {
        "model_name_or_path": str(model),
        "dataset_name_or_path": str(data),
        "output_dir": "out",
        "do_train": True,
        "per_device_train_batch_size": 4,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_steps": 3,
        "src_length": 64,
        "max_length": 128,
        "tensor_parallel_degree": SLOTS,
    } | changes


def log(service: Service, job_id: str, rank: int) -> list[str]:
    return [line["line"] for line in service.pages(f"/jobs/{job_id}/logs", rank=str(rank))]


def reached(job: dict[str, Any], step: int) -> bool:
    return ((job["progress"] or {}).get("step") or 0) >= step


def rank_pid(service: Service, job_id: str, attempt: int, rank: int) -> int:
    (start,) = service.data_dir.rglob(f"*{job_id}/attempts/{attempt}/start-{rank}.json")
    return json.loads(start.read_text())["pid"]


def test_a_job_with_parallel_degrees_gets_its_devices_and_a_log_for_each_rank(
    service: Service, model: Path, data: Path
) -> None:
    job = service.wait(service.submit(config(model, data))["id"])
    assert job["resources"]["devices_per_node"] == SLOTS
    metrics = service.pages(f"/jobs/{job['id']}/metrics", kind="train")
    assert [metric["step"] for metric in metrics] == [*range(1, 7)]
    for rank in range(SLOTS):
        assert any("step 6/6" in line for line in log(service, job["id"], rank)), rank
    results = [event for event in service.pages(f"/jobs/{job['id']}/events") if event["type"] == "result"]
    assert len(results) == 1


def test_a_job_whose_rank_is_killed_goes_on_from_its_last_checkpoint(
    service: Service, model: Path, data: Path
) -> None:
    job_id = service.submit(config(model, data, max_steps=40, save_steps=4), max_retries=1)["id"]
    service.wait_for(job_id, lambda job: reached(job, 5))
    pids = [rank_pid(service, job_id, 1, rank) for rank in range(SLOTS)]
    os.kill(pids[1], signal.SIGKILL)
    job = service.wait(job_id)
    assert job["attempt"] == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)
    told = [str(event) for event in service.pages(f"/jobs/{job_id}/events")]
    assert any("Rank 1 was killed by signal 9 (SIGKILL)" in event for event in told)
    assert any("going on from step " in line for line in log(service, job_id, 1))
    steps = [metric["step"] for metric in service.pages(f"/jobs/{job_id}/metrics", kind="train")]
    assert sorted(set(steps)) == [*range(1, 41)]


def test_a_job_that_is_cancelled_keeps_the_checkpoint_of_all_its_ranks(
    service: Service, model: Path, data: Path
) -> None:
    job_id = service.submit(config(model, data, max_steps=5000, save_steps=5000))["id"]
    service.wait_for(job_id, lambda job: reached(job, 3))
    assert service.client.post(f"/jobs/{job_id}/cancel").status_code < 300
    job = service.wait(job_id, "cancelled")
    assert job["message"] == "The trainer has stopped with a checkpoint."
    assert len(service.pages(f"/jobs/{job_id}/checkpoints")) == 1
