"""SIGKILL any process while a job runs: nothing is lost, nothing happens twice."""

import contextlib
import json
import signal
from pathlib import Path

import psutil
import pytest

from cli.client import Client
from cli.sse import follow
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


@pytest.mark.parametrize("victim", ["worker", "api", "valkey", "scheduler"])
def test_a_killed_part_of_the_service_disturbs_no_job(
    service: Service, model: Path, data: Path, undisturbed: dict[str, str], victim: str
) -> None:
    job = service.submit(config(model, data))
    service.wait_for(job["id"], reached(STEPS // 3))
    pid = service.child_pid(victim)
    psutil.Process(pid).send_signal(signal.SIGKILL)

    def restarted() -> bool:
        with contextlib.suppress(OSError, ValueError):
            return service.child_pid(victim) != pid
        return False

    wait_until(restarted, 60, lambda: f"{victim} was not started again")
    done = service.wait(job["id"])
    assert done["attempt"] == 1
    assert weights(service, job["id"]) == undisturbed
    assert steps(service, job["id"]) == list(range(1, STEPS + 1))
    assert log_lines(service, job["id"]) == raw_log(service, job["id"])
    follow_up = service.submit(config(model, data, max_steps=2))
    service.wait(follow_up["id"])


def test_followers_see_every_line_once_though_the_api_is_killed(
    service: Service, model: Path, data: Path
) -> None:
    job = service.submit(config(model, data))
    service.wait_for(job["id"], reached(5))
    seen: list[str] = []
    killed = False
    with Client(str(service.client.base_url)) as client:
        for event in follow(client, f"/jobs/{job['id']}/logs"):
            if event.type == "log":
                seen.append(json.loads(event.data)["line"])
            if len(seen) > 20 and not killed:
                killed = True
                psutil.Process(service.child_pid("api")).send_signal(signal.SIGKILL)
    assert killed
    service.wait(job["id"])
    assert seen == raw_log(service, job["id"])
