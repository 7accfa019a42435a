"""SIGKILL any process while a job runs: nothing is lost, nothing happens twice."""

import contextlib
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.service import Service, wait_until

pytestmark = pytest.mark.chaos
STEPS = 120


def config(model: Path, data: Path, **changes: object) -> dict:
    return {
        "model_name_or_path": str(model),
        "dataset_name_or_path": str(data),
        "output_dir": "out",
        "do_train": True,
        "per_device_train_batch_size": 4,
        "max_steps": STEPS,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 20,
        "save_total_limit": 2,
        "src_length": 64,
        "max_length": 128,
        "seed": 7,
    } | changes


def weights(service: Service, job_id: str) -> dict[str, str]:
    """sha256 of every weight file of the result."""
    files = service.client.get(f"/jobs/{job_id}/result").json()["files"]
    return {file["path"]: file["sha256"] for file in files if file["path"].endswith(".safetensors")}


def steps(service: Service, job_id: str) -> list[int]:
    return [metric["step"] for metric in service.pages(f"/jobs/{job_id}/metrics", kind="train")]


def log_lines(service: Service, job_id: str) -> list[str]:
    return [line["line"] for line in service.pages(f"/jobs/{job_id}/logs")]


def raw_log(service: Service, job_id: str) -> list[str]:
    """What the trainer wrote, attempt after attempt."""
    attempts = sorted(
        service.data_dir.rglob(f"*{job_id}/attempts/*/rank-0.log"), key=lambda path: int(path.parent.name)
    )
    return [line for path in attempts for line in path.read_text().splitlines()]


def reached(step: int):
    return lambda job: (job["progress"]["step"] or 0) >= step


@pytest.fixture(scope="module")
def undisturbed(service: Service, model: Path, data: Path) -> dict[str, str]:
    """The weights of a run that nothing disturbed."""
    job = service.submit(config(model, data))
    service.wait(job["id"])
    return weights(service, job["id"])


def test_a_killed_trainer_resumes_by_itself_to_the_same_bits(
    service: Service, model: Path, data: Path, undisturbed: dict[str, str]
) -> None:
    job = service.submit(config(model, data))
    service.wait_for(job["id"], reached(STEPS // 2))
    trainer = service.trainer(job["id"])
    assert trainer is not None
    trainer.kill()
    done = service.wait(job["id"])
    events = service.pages(f"/jobs/{job['id']}/events")
    assert "trainer_killed" in [event["reason"] for event in events]
    assert done["attempt"] == 2
    assert "going on from step" in service.log_text(job["id"])
    assert weights(service, job["id"]) == undisturbed
    assert steps(service, job["id"]) == list(range(1, STEPS + 1))
    assert log_lines(service, job["id"]) == raw_log(service, job["id"])


def test_killed_parts_of_the_service_disturb_no_job_and_no_follower(
    service: Service, model: Path, data: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    job = service.submit(config(model, data))
    followed = tmp_path / "followed.txt"
    with followed.open("wb") as output:
        words = [sys.executable, "-m", "cli", "logs", "-f", job["id"]]
        follower = subprocess.Popen(
            words, env=os.environ | {"REGATTA_URL": str(service.client.base_url)}, stdout=output
        )
    victims = {victim: service.child_pid(victim) for victim in ("worker", "valkey", "scheduler", "api")}
    service.wait_for(job["id"], reached(STEPS // 4))
    for pid in victims.values():
        psutil.Process(pid).kill()
    for victim, pid in victims.items():
        wait_until(partial(is_replaced, service, victim, pid), 60, f"{victim} was not started again".__str__)
    done = service.wait(job["id"])
    assert done["attempt"] == 1
    assert weights(service, job["id"]) == undisturbed
    assert steps(service, job["id"]) == list(range(1, STEPS + 1))
    assert log_lines(service, job["id"]) == raw_log(service, job["id"])
    assert follower.wait(60) == 0
    assert followed.read_text().splitlines() == raw_log(service, job["id"])
    follow_up = service.submit(config(model, data, max_steps=2))
    service.wait(follow_up["id"])


def is_replaced(service: Service, name: str, pid: int) -> bool:
    """Whether another process has taken the killed one's place."""
    with contextlib.suppress(OSError, ValueError):
        return service.child_pid(name) != pid
    return False
