"""`regatta up` ends while a job trains, and the next one on the same data goes on with it."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.service import Service, running_service, wait_until

ENDLESS = 1_000_000  # steps of a job that is surely still training when something happens to the service
TIMEOUT_S = 60.0


@pytest.fixture
def config(model: Path, data: Path) -> dict:
    return {
        "model_name_or_path": str(model),
        "dataset_name_or_path": str(data),
        "output_dir": "out",
        "do_train": True,
        "per_device_train_batch_size": 4,
        "max_steps": ENDLESS,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": ENDLESS,
        "src_length": 64,
        "max_length": 128,
    }


def submit_and_train(service: Service, config: dict) -> str:
    job = service.submit(config)
    train_on(service, job["id"], 10)
    return job["id"]


def train_on(service: Service, job_id: str, step: int) -> dict:
    """Wait until the job trains and has come to `step`."""
    return service.wait_for(
        job_id, lambda job: job["status"] == "running" and (job["progress"]["step"] or 0) >= step
    )


def cancel(service: Service, job_id: str) -> None:
    assert service.client.post(f"/jobs/{job_id}/cancel").status_code in (200, 202)
    service.wait(job_id, "cancelled")


def said(log: Path, words: str) -> bool:
    return words in log.read_text()


def logged_steps(service: Service, job_id: str) -> list[int]:
    return [metric["step"] for metric in service.pages(f"/jobs/{job_id}/metrics", kind="train")]


def test_a_running_job_is_stopped_with_a_checkpoint_and_goes_on_from_it(
    root: Path, config: dict, tmp_path: Path
) -> None:
    with running_service(tmp_path, root) as service:
        job_id = submit_and_train(service, config)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(TIMEOUT_S) == 0
        assert "stopping 1 running job(s) with a checkpoint" in (tmp_path / "up.log").read_text()
    with running_service(tmp_path, root) as service:
        stopped_at = service.job(job_id)["progress"]["step"] or 0
        assert train_on(service, job_id, stopped_at + 20)["attempt"] == 2
        cancel(service, job_id)
        steps = logged_steps(service, job_id)
        assert steps == list(range(1, len(steps) + 1))
        events = service.pages(f"/jobs/{job_id}/events")
        assert "host_stopping" in [event["reason"] for event in events]


def test_a_second_ctrl_c_does_not_wait_for_the_checkpoint_and_loses_no_job(
    root: Path, config: dict, tmp_path: Path
) -> None:
    short_lease = {"REGATTA_LEASE_TTL_S": "12", "REGATTA_LEASE_GRACE_S": "1", "REGATTA_HEARTBEAT_S": "2"}
    with running_service(tmp_path, root, **short_lease) as service:
        job_id = submit_and_train(service, config)
        service.process.send_signal(signal.SIGINT)
        stopping = partial(said, tmp_path / "up.log", "stopping 1 running job(s) with a checkpoint")
        wait_until(stopping, TIMEOUT_S, (tmp_path / "up.log").read_text)
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(TIMEOUT_S) == 0
    with running_service(tmp_path, root, **short_lease) as service:
        service.wait_for(job_id, lambda job: job["status"] == "running" and job["attempt"] == 2)
        cancel(service, job_id)


def test_a_job_does_not_notice_that_up_was_killed_and_started_again(
    root: Path, config: dict, tmp_path: Path
) -> None:
    with running_service(tmp_path, root) as service:
        job_id = submit_and_train(service, config)
        service.process.kill()
        service.process.wait(TIMEOUT_S)
        with running_service(tmp_path, root) as successor:
            seen = successor.job(job_id)["progress"]["step"]
            assert train_on(successor, job_id, seen + 20)["attempt"] == 1
            cancel(successor, job_id)
            steps = logged_steps(successor, job_id)
            assert steps == list(range(1, len(steps) + 1))


def test_followed_logs_go_on_over_a_restart_without_a_line_twice(
    root: Path, config: dict, tmp_path: Path
) -> None:
    with running_service(tmp_path, root) as service:
        job_id = submit_and_train(service, config)
        output = tmp_path / "followed.txt"
        with output.open("wb") as file:
            follower = subprocess.Popen(
                [sys.executable, "-m", "cli", "logs", "-f", job_id],
                env=os.environ | {"REGATTA_URL": str(service.client.base_url)},
                stdout=file,
            )
        try:
            wait_until(lambda: output.stat().st_size > 0, TIMEOUT_S, lambda: "nothing was followed")
            os.kill(service.child_pid("api"), signal.SIGKILL)
            train_on(service, job_id, service.wait_for(job_id, bool)["progress"]["step"] + 20)
            cancel(service, job_id)
            assert follower.wait(TIMEOUT_S) == 0
        finally:
            follower.kill()
        assert output.read_text().splitlines() == [
            line["line"] for line in service.pages(f"/jobs/{job_id}/logs")
        ]
