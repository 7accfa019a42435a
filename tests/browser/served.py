"""The service as the browser sees it: a real server over a real store, and hands to move jobs on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from store.attempts import Node, claim, place
from store.database import Database
from store.hosts import register_host
from store.jobs import existing_job
from store.settings import Settings
from tests.api.parts import Job, serving

CONFIG = {
    "model_name_or_path": "tiny-gemma",
    "dataset_name_or_path": "sft",
    "output_dir": "out",
    "do_train": True,
    "max_steps": 20,
    "learning_rate": 3e-05,
    "logging_steps": 1,
}
"""A small valid argument file."""


@dataclass(frozen=True)
class Served:
    """A server for all browser tests of a session; each test uses jobs and data of its own."""

    url: str
    client: httpx.Client
    database: Database
    settings: Settings

    def submit(self, config: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
        """POST a valid job and give its document."""
        body = {"task": "finetune", "config": CONFIG | (config or {})} | members
        answer = self.client.post("/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def job(self, **members: Any) -> Job:
        """A queued job and the hands of the worker that runs it."""
        return self.hands(self.submit(**members)["id"])

    def hands(self, job_id: str) -> Job:
        """The hands of the worker that runs a job."""
        return Job(job_id, self.database, self.settings)

    def host(
        self, name: str, device: str = "cpu", devices: int = 1, memory: int = 8 << 30, **about: Any
    ) -> None:
        """Register a host that has just said that it lives."""
        offered = [{"index": index, "memory_bytes": memory} for index in range(devices)]
        with self.database.transaction() as session:
            register_host(session, name, device=device, devices=offered, **about)

    def start(self, job: Job, host: str = "", devices: tuple[int, ...] = (0,)) -> None:
        """Place a job on a host, by default one of its own, that claims it and starts it."""
        if not host:
            host = f"berth-{job.id[-6:]}"
            self.host(host)
        with self.database.transaction() as session:
            assert place(session, existing_job(session, job.id), [Node(host, devices)])
            assert claim(session, job.id, 1, host, "runner", ttl_s=3600)
        job.nudge()

    def upload(self, name: str, lines: str, split: str = "train") -> dict[str, Any]:
        """POST a data set that must be accepted."""
        answer = self.client.post(
            "/datasets",
            params={"name": name, "split": split},
            content=lines.encode(),
            headers={"content-type": "application/x-ndjson"},
        )
        assert answer.status_code in (200, 201), answer.text
        return answer.json()


@contextmanager
def served(settings: Settings) -> Iterator[Served]:
    """A server until the block ends."""
    database = Database(settings.database_url)
    try:
        with serving(settings) as server, httpx.Client(base_url=server.url, timeout=20) as client:
            yield Served(server.url, client, database, settings)
    finally:
        database.dispose()


def settings_in(folder: Path, database: Path) -> Settings:
    """Settings of a service with everything below a folder; models and data in `models` and `data`."""
    return Settings(
        data_dir=folder / "data_dir",
        database_url=f"sqlite:///{database}",
        model_roots=(folder / "models",),
        data_roots=(folder / "data",),
        poll_s=0.2,
    )
