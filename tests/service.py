"""Start `regatta up` as a user does, and speak to it over HTTP."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

START_TIMEOUT_S = 120.0
JOB_TIMEOUT_S = 150.0
TERMINAL = ("succeeded", "failed", "cancelled")


@dataclass
class Service:
    """A running `regatta up`: its process, data directory and HTTP client."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    client: httpx.Client

    def submit(self, config: dict, task: str = "finetune", **body: object) -> dict:
        """POST a job that must be accepted."""
        answer = self.client.post("/jobs", json={"task": task, "config": config, **body})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def job(self, job_id: str) -> dict:
        answer = self.client.get(f"/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wait(self, job_id: str, status: str = "succeeded") -> dict:
        """Wait for the job's end, which must be `status`."""
        job = self.wait_for(job_id, lambda job: job["status"] in TERMINAL)
        assert job["status"] == status, f"{job}\n{self.log_text(job_id)}"
        return job

    def wait_for(self, job_id: str, condition: Callable[[dict], bool]) -> dict:
        """Poll the job until the condition holds; an API that is away counts as 'not yet'."""
        job: dict = {}

        def reached() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                job.update(self.job(job_id))
                return condition(job)
            return False

        wait_until(reached, JOB_TIMEOUT_S, lambda: f"job never got there: {job}\n{self.log_text(job_id)}")
        return job

    def pages(self, path: str, **filters: str) -> list[dict]:
        """All items of a paginated list."""
        items, cursor = [], None
        while True:
            position = {"cursor": cursor} if cursor else {}
            page = self.client.get(path, params={"limit": 100} | filters | position).json()
            items += page["items"]
            cursor = page["next_cursor"]
            if not cursor:
                return items

    def log_text(self, job_id: str) -> str:
        with contextlib.suppress(httpx.HTTPError):
            return self.client.get(f"/jobs/{job_id}/logs", headers={"accept": "text/plain"}).text
        return "(no logs: the API is away)"

    def child_pid(self, name: str) -> int:
        """The process id of `api`, `worker`, `scheduler` or `valkey`."""
        return int((self.data_dir / "run" / f"{name}.pid").read_text())

    def trainer(self, job_id: str) -> psutil.Process | None:
        """The trainer process of a job, None when there is none."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "trainer" in words and any(job_id in word for word in words):
                return process
        return None


def wait_until(condition: Callable[[], bool], timeout_s: float, complaint: Callable[[], str]) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.02)


@contextlib.contextmanager
def running_service(
    data_dir: Path, root: Path, *, data_root: Path | str | None = None, devices: str = "cpu:1", **env: str
) -> Iterator[Service]:
    """`regatta up` on a free port until the block ends, then SIGTERM; both roots are `root` unless told."""
    command = [sys.executable, "-m", "cli", "up", "--data-dir", str(data_dir), "--port", "0"]
    command += ["--devices", devices, "--model-root", str(root), "--data-root", str(data_root or root)]
    log = data_dir / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=os.environ | env, stdout=output, stderr=subprocess.STDOUT)
    announced = data_dir / "run" / "server.json"

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        # A killed predecessor may have left its own announcement.
        return announced.exists() and json.loads(announced.read_text())["pid"] == process.pid

    try:
        wait_until(ready, START_TIMEOUT_S, log.read_text)
        with httpx.Client(base_url=json.loads(announced.read_text())["url"], timeout=30) as client:
            yield Service(process, data_dir, client)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise


def build_tiny_gemma(directory: Path) -> Path:
    """A random Gemma small enough that a step takes some tens of milliseconds."""
    command = [sys.executable, "-m", "cli", "tiny-model", "gemma", str(directory)]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)
    return directory


def write_sft_data(directory: Path, examples: int = 48) -> Path:
    """A small SFT data set: questions about numbered berths."""
    directory.mkdir(parents=True)
    rows = [
        {"src": f"Which boat lies at berth {n}?", "tgt": f"Berth {n} holds the boat number {n * 7 % 50}."}
        for n in range(examples)
    ]
    (directory / "train.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "dev.json").write_text("".join(json.dumps(row) + "\n" for row in rows[::6]))
    return directory
