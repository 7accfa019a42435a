"""Jobs on two of three hosts, each with a worker, a workspace and one device of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service import TERMINAL, Service, running_service, wait_until
from worker.strays import live_runners

HOSTS = ("host-a", "host-b", "host-c")
SETTINGS: dict[str, Any] = {
    "REGATTA_LEASE_TTL_S": "20",
    "REGATTA_LEASE_GRACE_S": "1",
    "REGATTA_HEARTBEAT_S": "1",
    "REGATTA_RETRY_BACKOFF_S": "0.2",
    "OMP_NUM_THREADS": "1",
}
TWO = {"nodes": 2, "devices_per_node": 1}

pytestmark = pytest.mark.timeout(900)  # trainers of two hosts start together, several times


@contextlib.contextmanager
def running_worker(up: Service, name: str, root: Path) -> Iterator[None]:
    """One more host: it has nothing but database, broker and artifacts in common with the others."""
    own = up.data_dir / name
    own.mkdir()
    environment = (
        os.environ
        | SETTINGS
        | {
            "REGATTA_DATA_DIR": str(up.data_dir),
            "REGATTA_WORK_DIR": str(work_dir(up, name)),
            "REGATTA_HOST_NAME": name,
            "REGATTA_DEVICES": "cpu:1",
            "REGATTA_MODEL_ROOTS": str(root),
            "REGATTA_DATA_ROOTS": str(root),
        }
    )
    with (own / "worker.log").open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "cli", "worker"], env=environment, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)


def work_dir(service: Service, host: str) -> Path:
    return service.data_dir / ("work" if host == HOSTS[0] else f"{host}/work")


@pytest.fixture(scope="module")
def service(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    with (
        running_service(folder, root, REGATTA_HOST_NAME=HOSTS[0], **SETTINGS) as up,
        running_worker(up, HOSTS[1], root),
        running_worker(up, HOSTS[2], root),
    ):
        hosts = lambda: up.client.get("/hosts").json()["items"]  # noqa: E731
        wait_until(lambda: len(hosts()) == len(HOSTS), 120, lambda: f"a host is missing: {hosts()}")
        yield up


def config(model: Path, data: Path, **changes: Any) -> dict[str, Any]:
    return {
        "model_name_or_path": str(model),
        "dataset_name_or_path": str(data),
        "output_dir": "out",
        "do_train": True,
        "max_steps": 4,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_steps": 2,
        "src_length": 64,
        "max_length": 128,
        "seed": 7,
    } | changes


def losses(service: Service, job_id: str) -> dict[int, float]:
    metrics = service.pages(f"/jobs/{job_id}/metrics", kind="train")
    found = {metric["step"]: metric["values"]["loss"] for metric in metrics}
    assert len(found) == len(metrics)
    return found


def hosts_of(job: dict[str, Any]) -> list[str]:
    return [node["host"] for node in job["placement"] or []]


def raw_lines(service: Service, job: dict[str, Any], rank: int) -> list[str]:
    """What a rank has written, in all attempts."""
    logs = service.data_dir.rglob(f"{job['id']}/attempts/*/rank-{rank}.log")
    in_order = sorted(logs, key=lambda path: int(path.parent.name))
    return [line for path in in_order for line in path.read_text().splitlines()]


def is_at_work(attempt: int, steps: int) -> Any:
    """Whether an attempt has trained, and the job has come so far."""

    def reached(job: dict[str, Any]) -> bool:
        assert job["status"] not in TERMINAL, job
        return (
            job["attempt"] == attempt
            and job["status"] == "running"
            and (job["progress"]["step"] or 0) >= steps
        )

    return reached


def test_two_hosts_train_as_one_process_does(service: Service, model: Path, data: Path) -> None:
    wanted = config(model, data, per_device_train_batch_size=2, sharding="stage1")
    ids = [
        service.submit(wanted, resources=TWO)["id"],
        service.submit(config(model, data, per_device_train_batch_size=4))["id"],
    ]
    gang, alone = (service.wait(job_id) for job_id in ids)

    placement = [(len(node["devices"]), node["ranks"]) for node in gang["placement"]]
    assert placement == [(1, [0]), (1, [1])]
    assert len(set(hosts_of(gang))) == 2
    expected = losses(service, alone["id"])
    assert losses(service, gang["id"]) == pytest.approx(expected, rel=1e-5)
    assert list(expected) == [1, 2, 3, 4]

    lines = service.pages(f"/jobs/{gang['id']}/logs")
    assert [line["cursor"] for line in lines] == [f"1-{n + 1}" for n in range(len(lines))]
    for rank in (0, 1):
        told = [line["line"] for line in lines if line["rank"] == rank]
        assert told == raw_lines(service, gang, rank)
        assert sum("step 4/4" in line for line in told) == 1

    checkpoints = service.pages(f"/jobs/{gang['id']}/checkpoints")
    assert [checkpoint["name"] for checkpoint in checkpoints] == ["checkpoint-2", "checkpoint-4"]
    parts = {
        frozenset(path.name for path in work.glob(f"{gang['id']}/out/checkpoint-4/*"))
        for work in (work_dir(service, host) for host in hosts_of(gang))
    }
    kept = service.client.get(f"/jobs/{gang['id']}/checkpoints/checkpoint-4").json()["files"]
    assert frozenset.union(*parts) == {file["path"] for file in kept}
    assert all(parts)
    results = [service.client.get(f"/jobs/{job_id}/result").json()["files"] for job_id in ids]
    assert {file["path"] for file in results[0]} == {file["path"] for file in results[1]}


def test_a_job_survives_the_loss_of_what_runs_it_and_moves_between_hosts(
    service: Service, model: Path, data: Path
) -> None:
    """A host is drained, then a rank and then a whole runner is killed, then the job is cancelled."""
    wanted = config(model, data, per_device_train_batch_size=2, max_steps=5000, save_steps=10)
    job_id = service.submit(wanted, resources=TWO)["id"]
    job = service.wait_for(job_id, is_at_work(1, 1))
    drained = hosts_of(job)[1]
    assert service.client.post(f"/hosts/{drained}/drain", json={"reason": "repair"}).status_code == 200

    job = service.wait_for(job_id, is_at_work(2, 1))
    events = service.pages(f"/jobs/{job_id}/events")
    assert "host_stopping" in [event["reason"] for event in events]
    assert drained not in hosts_of(job)
    kept = service.pages(f"/jobs/{job_id}/checkpoints")[-1]["step"]
    job = service.wait_for(job_id, is_at_work(2, kept + 10))
    (start,) = service.data_dir.rglob(f"{job_id}/attempts/2/start-1.json")
    os.kill(json.loads(start.read_text())["pid"], signal.SIGKILL)

    job = service.wait_for(job_id, is_at_work(3, kept + 10))
    told = [event["message"] for event in service.pages(f"/jobs/{job_id}/events")]
    assert any("Rank 1 was killed by signal 9 (SIGKILL)" in message for message in told), told
    (runner,) = [
        found for found in live_runners(work_dir(service, hosts_of(job)[1])) if found.job_id == job_id
    ]
    runner.process.kill()

    service.wait_for(job_id, is_at_work(4, kept + 10))
    assert service.client.post(f"/jobs/{job_id}/cancel").status_code < 300
    job = service.wait(job_id, "cancelled")
    assert job["message"] == "The trainer has stopped with a checkpoint."
    last = service.pages(f"/jobs/{job_id}/checkpoints")[-1]["step"]
    assert list(losses(service, job_id)) == list(range(1, last + 1))
    log = service.pages(f"/jobs/{job_id}/logs")
    assert sum(" saved /" in line["line"] and f"checkpoint-{last}" in line["line"] for line in log) == 2
    assert any(f"going on from step {kept}" in line["line"] for line in log if line["rank"] == 1)
    for rank in (0, 1):
        assert [line["line"] for line in log if line["rank"] == rank] == raw_lines(service, job, rank)
    assert service.client.post(f"/hosts/{drained}/uncordon").status_code == 200
