"""The Python client on a real service: a job from its data to its result, and logs over a restart."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regatta_client import AsyncRegatta, InvalidError, JobDidNotSucceedError, NotFoundError, Regatta
from tests.service import Service

ENDLESS = 1_000_000
PAGE = Path(__file__).parents[2] / "docs" / "python.md"
EXAMPLE_TIMEOUT_S = 120


@pytest.fixture
def url(service: Service) -> str:
    return str(service.client.base_url)


@pytest.fixture
def client(url: str) -> Iterator[Regatta]:
    with Regatta(url) as client:
        yield client


def config(model: Path, dataset: str, steps: int) -> dict:
    return {
        "model_name_or_path": str(model),
        "dataset_name_or_path": dataset,
        "output_dir": "out",
        "max_steps": steps,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 2,
        "save_total_limit": 1,
        "src_length": 64,
        "max_length": 128,
    }


def test_a_job_from_its_data_to_its_result(client: Regatta, model: Path, data: Path, tmp_path: Path) -> None:
    dataset = client.datasets.upload(data / "train.json", name="berths")
    assert dataset.splits["train"].examples == 48
    arguments = config(model, dataset.reference, 3)
    assert client.jobs.validate("finetune", arguments).statistics["optimizer_steps"] == 3
    job = client.jobs.submit("finetune", arguments, labels={"team": "harbour"}, idempotency_key="one")
    again = client.jobs.submit("finetune", arguments, labels={"team": "harbour"}, idempotency_key="one")
    assert again.id == job.id
    ended = client.jobs.wait(job.id, timeout_s=150)
    assert ended.status == "succeeded"
    assert [each.step for each in client.jobs.metrics(job.id, kind="train")] == [1, 2, 3]
    assert [each.to_status for each in client.jobs.events(job.id, follow=True) if each.to_status][-1] == (
        "succeeded"
    )
    folder = client.checkpoints.download(job.id, tmp_path / "result")
    listed = client.checkpoints.get(job.id)
    assert {file.path for file in listed.files} == {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }
    assert [found.id for found in client.jobs.list(labels={"team": "harbour"})] == [job.id]
    copy = client.jobs.clone(job.id, name="again")
    assert client.jobs.cancel(copy.id).id == copy.id
    with pytest.raises(JobDidNotSucceedError):
        client.jobs.wait(copy.id, timeout_s=100)


def test_a_wrong_job_is_refused_with_its_problems(client: Regatta, model: Path) -> None:
    with pytest.raises(InvalidError) as refusal:
        client.jobs.submit("finetune", config(model, "no-such-data", 3))
    assert ["body", "config", "dataset_name_or_path"] in [problem.loc for problem in refusal.value.problems]


def test_hosts_are_cordoned_drained_and_opened_again(client: Regatta, url: str) -> None:
    (host,) = client.hosts.list()
    assert (host.device, len(host.devices), host.alive, host.excluded) == ("cpu", 1, True, False)
    assert client.hosts.cordon(host.name, "a fan is broken").cordon_reason == "a fan is broken"

    async def drain() -> list[tuple[bool, bool]]:
        async with AsyncRegatta(url) as other:
            drained = await other.hosts.drain(host.name)
            opened = await other.hosts.uncordon(host.name)
            listed = [each async for each in other.hosts.list()]
        return [(each.cordoned, each.draining) for each in (drained, opened, *listed)]

    assert asyncio.run(drain()) == [(True, True), (False, False), (False, False)]
    with pytest.raises(NotFoundError):
        client.hosts.uncordon("no-such-host")


def test_logs_are_followed_over_a_restart_without_a_line_twice(
    service: Service, url: str, client: Regatta, model: Path, data: Path, tmp_path: Path
) -> None:
    job = client.jobs.submit("finetune", config(model, str(data), ENDLESS))
    try:
        asyncio.run(follow_over_a_restart(service, url, job.id, tmp_path))
    finally:
        if client.jobs.get(job.id).status not in ("cancelled", "failed"):
            client.jobs.cancel(job.id)


async def follow_over_a_restart(service: Service, url: str, job_id: str, folder: Path) -> None:
    """Follow a job's log; kill the API after some lines and stop the job after some more. Then fetch what it
    has saved.
    """
    lines: list[str] = []
    async with AsyncRegatta(url) as client:
        async for line in client.jobs.logs(job_id, follow=True):
            lines.append(line.line)
            if len(lines) == 20:
                os.kill(service.child_pid("api"), signal.SIGKILL)
            if len(lines) == 60:
                await client.jobs.cancel(job_id)
        ended = await client.jobs.wait(job_id, timeout_s=100, must_succeed=False)
        assert ended.status == "cancelled"
        assert lines == [line.line async for line in client.jobs.logs(job_id)]
        (checkpoint,) = [each async for each in client.checkpoints.list(job_id)]
        saved = await client.checkpoints.download(job_id, folder / "saved", checkpoint.name)
        assert (saved / "model.safetensors").is_file()


@pytest.mark.parametrize("number", [1, 2])
def test_the_examples_of_the_page_run(number: int, url: str, model: Path, data: Path, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    code = (
        examples[number]
        .replace("/models/tiny-gemma", str(model))
        .replace("/data/train.json", str(data / "train.json"))
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"REGATTA_URL": url},
        capture_output=True,
        text=True,
        timeout=EXAMPLE_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stdout
