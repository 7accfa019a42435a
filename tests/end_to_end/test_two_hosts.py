"""A job moves from host to host, when one is drained and when the worker of the other is stopped for good."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Service, wait_until

STEPS = 160
TIMEOUT_S = 60.0


@pytest.fixture
def second(service: Service, root: Path, tmp_path: Path) -> Iterator[subprocess.Popen]:
    """The worker of a host named "second", with a work directory of its own; it takes its jobs along."""
    settings = {
        "DATA_DIR": str(service.data_dir),
        "WORK_DIR": str(tmp_path / "second"),
        "HOST_NAME": "second",
        "MODEL_ROOTS": json.dumps([str(root)]),
        "DATA_ROOTS": json.dumps([str(root)]),
    }
    environment = os.environ | {f"REGATTA_{name}": value for name, value in settings.items()}
    with (tmp_path / "second.log").open("wb") as log:
        command = [sys.executable, "-m", "cli", "worker", "--stop-jobs"]
        worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    wait_until(lambda: "second" in hosts(service), TIMEOUT_S, lambda: (tmp_path / "second.log").read_text())
    yield worker
    worker.kill()
    worker.wait(30)


def hosts(service: Service) -> dict[str, dict]:
    return {host["name"]: host for host in service.client.get("/hosts").json()["items"]}


def regatta(service: Service, *words: str) -> None:
    environment = os.environ | {"REGATTA_URL": str(service.client.base_url)}
    subprocess.run([sys.executable, "-m", "cli", *words], env=environment, check=True, timeout=TIMEOUT_S)


def train_on(service: Service, job_id: str, host: str, steps: int = 10) -> int:
    """Wait until the job has trained for some steps on a host; the step it is at."""

    def at(job: dict) -> int:
        there = job["status"] == "running" and job["placement"][0]["host"] == host
        return (job["progress"]["step"] or 0) if there else 0

    begin = at(service.wait_for(job_id, lambda job: at(job) > 0))
    return at(service.wait_for(job_id, lambda job: at(job) >= begin + steps))


def test_a_job_goes_on_elsewhere_when_its_host_is_drained_and_when_a_worker_is_stopped(
    service: Service, second: subprocess.Popen, model: Path, data: Path
) -> None:
    (first,) = set(hosts(service)) - {"second"}
    regatta(service, "hosts", "cordon", "second")
    config = {
        "model_name_or_path": str(model),
        "dataset_name_or_path": str(data),
        "output_dir": "out",
        "do_train": True,
        "max_steps": STEPS,
        "logging_steps": 1,
        "save_strategy": "no",
        "src_length": 64,
        "max_length": 128,
    }
    job_id = service.submit(config)["id"]
    before = train_on(service, job_id, first)
    regatta(service, "hosts", "uncordon", "second")
    regatta(service, "hosts", "drain", first, "--reason", "new disk")
    assert train_on(service, job_id, "second") > before
    shown = hosts(service)[first]
    assert (shown["draining"], shown["running"], shown["cordon_reason"]) == (True, [], "new disk")

    regatta(service, "hosts", "uncordon", first)
    second.send_signal(signal.SIGTERM)
    assert second.wait(TIMEOUT_S) == 0
    assert not hosts(service)["second"]["accepts_jobs"]
    done = service.wait(job_id)

    assert (done["attempt"], done["placement"][0]["host"]) == (3, first)
    events = [each for each in service.pages(f"/jobs/{job_id}/events") if each["type"] == "status"]
    stops = [event["message"] for event in events if event["reason"] == "host_stopping"]
    saved = "The trainer has stopped with a checkpoint."
    why = ("The host is drained.", "The service on this host was shut down.")
    assert stops == [f"{words} {saved}" for words in why]
    metrics = service.pages(f"/jobs/{job_id}/metrics", kind="train")
    assert [metric["step"] for metric in metrics] == list(range(1, STEPS + 1))
