"""A job whose results lie in a bucket: everything lands there, and another host goes on from it."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from store.artifacts import artifacts_for
from tests.s3 import SECRET, S3Server
from tests.service import running_service

MOST_STEPS = 100_000
TIMEOUT_S = 60.0


@pytest.fixture
def config(model: Path, data: Path) -> dict:
    return {
        "model_name_or_path": str(model),
        "dataset_name_or_path": str(data),
        "output_dir": "out",
        "do_train": True,
        "per_device_train_batch_size": 4,
        "max_steps": MOST_STEPS,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": MOST_STEPS,
        "src_length": 64,
        "max_length": 128,
    }


def test_a_job_lands_in_the_bucket_and_goes_on_from_it_on_a_fresh_work_directory(
    root: Path, config: dict, tmp_path: Path, s3: S3Server
) -> None:
    url = s3.url()
    bucket = artifacts_for(url)
    works = (tmp_path / "first-host", tmp_path / "second-host")
    environment = {"REGATTA_ARTIFACTS_URL": url}
    with running_service(tmp_path, root, REGATTA_WORK_DIR=str(works[0]), **environment) as service:
        job_id = service.submit(config)["id"]
        service.wait_for(job_id, lambda job: (job["progress"]["step"] or 0) >= 10)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(TIMEOUT_S) == 0
    spec = json.loads(next(works[0].glob(f"{job_id}/attempts/*/spec.json")).read_text())
    assert not any(SECRET in value for value in spec["env"].values())
    shutil.rmtree(works[0])

    with running_service(tmp_path, root, REGATTA_WORK_DIR=str(works[1]), **environment) as service:
        stopped_at = service.job(job_id)["progress"]["step"]
        service.wait_for(job_id, lambda job: (job["progress"]["step"] or 0) >= stopped_at + 10)
        assert service.client.post(f"/jobs/{job_id}/cancel").status_code in (200, 202)
        service.wait(job_id, "cancelled")
        metrics = service.pages(f"/jobs/{job_id}/metrics", kind="train")
        assert [metric["step"] for metric in metrics] == list(range(1, len(metrics) + 1))
        assert {metric["attempt"] for metric in metrics} == {1, 2}
        checkpoints = service.client.get(f"/jobs/{job_id}/checkpoints").json()["items"]
        assert [checkpoint["step"] for checkpoint in checkpoints] == [stopped_at, len(metrics)]

        lines = service.log_text(job_id).splitlines()
        assert len(lines) > len(metrics)
        assert bucket.list(f"jobs/{job_id}/logs")

        short = service.submit(config | {"max_steps": 3})["id"]
        service.wait(short)
        result = service.client.get(f"/jobs/{short}/result").json()
        for file in result["files"]:
            key = f"jobs/{short}/checkpoints/1/result/{file['path']}"
            answer = service.client.get(f"/jobs/{short}/result/files/{file['path']}")
            assert answer.content == b"".join(bucket.open(key))
        part = service.client.get(
            f"/jobs/{short}/result/files/model.safetensors", headers={"range": "bytes=8-15"}
        )
        assert (part.status_code, len(part.content)) == (206, 8)
        assert service.client.get(f"/jobs/{short}/result/archive").status_code == 200
        assert service.client.delete(f"/jobs/{short}").status_code == 204
    assert not (tmp_path / "artifacts").exists()
    for log in (tmp_path / "logs").glob("*.log"):
        assert SECRET not in log.read_text()
