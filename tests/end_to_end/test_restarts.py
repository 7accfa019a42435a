"""`regatta up` ends while a job trains, and the next one on the same data goes on with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import Service, running_service

STEPS = 150
TIMEOUT_S = 60.0


@pytest.fixture
def config(model: Path, data: Path) -> dict:
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
        "save_steps": 1000,
        "src_length": 64,
        "max_length": 128,
    }


def submit_and_train(service: Service, config: dict) -> str:
    job = service.submit(config)
    service.wait_for(job["id"], lambda state: (state["progress"]["step"] or 0) >= 10)
    return job["id"]


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
        job = service.wait(job_id)
        assert job["attempt"] == 2
        assert logged_steps(service, job_id) == list(range(1, STEPS + 1))
        attempts = [(event["attempt"], event["reason"]) for event in service.pages(f"/jobs/{job_id}/events")]
        assert (1, "host_stopping") in attempts or (2, "host_stopping") in attempts


def test_a_second_ctrl_c_does_not_wait_for_the_checkpoint_and_loses_no_job(
    root: Path, config: dict, tmp_path: Path
) -> None:
    short_lease = {"REGATTA_LEASE_TTL_S": "12", "REGATTA_LEASE_GRACE_S": "1", "REGATTA_HEARTBEAT_S": "2"}
    with running_service(tmp_path, root, **short_lease) as service:
        job_id = submit_and_train(service, config)
        service.process.send_signal(signal.SIGINT)
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(TIMEOUT_S) == 0
    with running_service(tmp_path, root, **short_lease) as service:
        service.wait(job_id)


def test_a_job_does_not_notice_that_up_was_killed_and_started_again(
    root: Path, config: dict, tmp_path: Path
) -> None:
    with running_service(tmp_path, root) as service:
        job_id = submit_and_train(service, config)
        service.process.kill()
        service.process.wait(TIMEOUT_S)
        with running_service(tmp_path, root) as successor:
            assert successor.wait(job_id)["attempt"] == 1
            assert logged_steps(successor, job_id) == list(range(1, STEPS + 1))


def test_followed_logs_go_on_over_a_restart_without_a_line_twice(
    root: Path, config: dict, tmp_path: Path
) -> None:
    with running_service(tmp_path, root) as service:
        job_id = submit_and_train(service, config)
        url = str(service.client.base_url)
        follower = subprocess.Popen(
            [sys.executable, "-m", "cli", "logs", "-f", job_id],
            env=os.environ | {"REGATTA_URL": url},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            service.wait_for(job_id, lambda state: (state["progress"]["step"] or 0) >= 20)
            os.kill(service.child_pid("api"), signal.SIGKILL)
            service.wait(job_id)
            followed = follower.communicate(timeout=TIMEOUT_S)[0].splitlines()
        finally:
            follower.kill()
        assert follower.returncode == 0
        assert followed == [line["line"] for line in service.pages(f"/jobs/{job_id}/logs")]
