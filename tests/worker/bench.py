"""A host for tests: a real database, broker and artifacts, and runners as real processes."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import update

from store.artifacts import LocalArtifacts, artifacts_for
from store.attempts import Node, place
from store.database import Database
from store.events import list_events
from store.hosts import allocations, register_host
from store.jobs import NewJob, create_job, existing_job, request_cancel
from store.logs import START, LogArchive, LogLine, LogStream, read_logs
from store.metrics import list_metrics
from store.reaper import Reaped, reap
from store.reasons import Reason
from store.settings import Settings
from store.states import TERMINAL, Status, transition
from store.tables import AttemptNode, Job, JobEvent
from store.wake import job_channel, wake
from tests.worker.waiting import wait_until
from worker.launch import Launcher
from worker.strays import live_runners
from worker.workspace import Workspace

PROGRAMS = Path(__file__).parent / "programs"
SHORT_LEASE = {"lease_ttl_s": 8.0}
"""For tests that wait for its end; a runner starts within it on a busy machine too."""


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass(frozen=True)
class Bench:
    """What a test does to the service, and what it sees of it."""

    settings: Settings
    database: Database

    def submit(self, config: dict[str, Any] | None = None, **wanted: Any) -> str:
        """A new job; the config is what the stand-in for the trainer reads."""
        with self.database.transaction() as session:
            new = NewJob("finetune", config_given={}, config_resolved=config or {}, **wanted)
            return create_job(session, new).id

    def place(self, job_id: str, devices: int = 1) -> int:
        """Put the queued job on this host as the scheduler would; its attempt number."""
        host, indices = self.settings.host_name, tuple(range(devices))
        with self.database.transaction() as session:
            register_host(session, host, device="cpu", devices=[{"index": index} for index in indices])
            job = existing_job(session, job_id)
            assert place(session, job, [Node(host, indices)])
            return job.attempt

    def launch(self, job_id: str, attempt: int) -> None:
        """Run an attempt to the end of its runner."""
        Launcher(self.settings, self.database, threading.Event()).launch(job_id, attempt)

    def start(self, job_id: str) -> None:
        """Launch the job's next attempt and leave its runner alone."""
        leave = threading.Event()
        leave.set()
        Launcher(self.settings, self.database, leave).launch(job_id, self.place(job_id))

    def run(self, config: dict[str, Any] | None = None, **wanted: Any) -> Job:
        """Submit, place and launch a job; the job as its attempt has left it."""
        job_id = self.submit(config, **wanted)
        self.launch(job_id, self.place(job_id))
        return self.job(job_id)

    def reap(self) -> list[Reaped]:
        """End the attempts whose leases are over, as the scheduler does."""
        grace_s = self.settings.lease_grace_s
        with self.database.transaction() as session:
            return reap(session, grace_s=grace_s, start_timeout_s=60, policy=self.settings.retry_policy)

    def run_out(self, job_id: str) -> None:
        """Let the job's lease run out, which nobody renews any more."""
        with self.database.transaction() as session:
            session.execute(update(AttemptNode).where(AttemptNode.job_id == job_id).values(lease_until=0.0))

    def lose(self, job_id: str) -> None:
        """End the job's attempt, which nobody keeps alive any more."""
        self.run_out(job_id)
        assert [reaped.job_id for reaped in self.reap()] == [job_id]

    def take_away(self, job_id: str) -> None:
        """End the job's attempt as if its lease had run out."""
        with self.database.transaction() as session:
            assert transition(session, job_id, Status.queued, reason=Reason.host_lost)

    def cancel(self, job_id: str) -> None:
        """Cancel the job as the API does."""
        with self.database.transaction() as session:
            request_cancel(session, job_id)
        wake(self.settings.broker_url, job_channel(job_id))

    def job(self, job_id: str) -> Job:
        with self.database.reading() as session:
            return existing_job(session, job_id)

    def wait(self, job_id: str, condition: Callable[[Job], bool]) -> Job:
        """Wait until the job is as the condition says."""
        wait_until(lambda: condition(self.job(job_id)), complaint=lambda: self.story(job_id))
        return self.job(job_id)

    def wait_for_end(self, job_id: str) -> Job:
        """Wait until the job is finished and its runners are gone."""
        self.wait(job_id, lambda job: job.status in TERMINAL)
        self.wait_for_no_runner()
        return self.job(job_id)

    def wait_for_no_runner(self) -> None:
        wait_until(lambda: not live_runners(self.settings.work_dir))

    def runner(self, job_id: str) -> psutil.Process:
        """The live runner of the job."""
        return next(r.process for r in live_runners(self.settings.work_dir) if r.job_id == job_id)

    def workspace(self, job_id: str) -> Workspace:
        return Workspace(self.settings.work_dir / job_id)

    def pids(self, job_id: str) -> list[int]:
        """The trainer of the job and its children, once they are started."""
        file = self.workspace(job_id).path / "pids.json"
        wait_until(lambda: file.exists() and file.read_text())
        return json.loads(file.read_text())

    def metric_steps(self, job_id: str) -> list[int]:
        """The steps of the training metrics, in the order of their ids."""
        with self.database.reading() as session:
            return [metric.step for metric in list_metrics(session, job_id, "train", limit=10_000)]

    def events(self, job_id: str, kind: str = "") -> list[JobEvent]:
        with self.database.reading() as session:
            found = list_events(session, job_id, limit=10_000)
        return [event for event in found if kind in ("", event.type)]

    def history(self, job_id: str) -> list[str]:
        """The statuses that the job has gone through."""
        return [event.to_status or "" for event in self.events(job_id, "status")]

    def allocations(self) -> list[tuple[str, int]]:
        """The attempts that hold devices."""
        with self.database.reading() as session:
            return [(node.job_id, node.attempt) for node in allocations(session)]

    @property
    def artifacts(self) -> LocalArtifacts:
        artifacts = artifacts_for(self.settings.artifacts_url)
        assert isinstance(artifacts, LocalArtifacts)
        return artifacts

    def archived(self, job_id: str) -> list[LogLine]:
        """The lines of the job in the archive."""
        return list(LogArchive(self.artifacts).read(job_id))

    def logs(self, job_id: str) -> list[LogLine]:
        """The lines of the job as the API serves them."""
        stream, archive = LogStream(self.settings.broker_url), LogArchive(self.artifacts)
        lines, after = [], START
        while page := read_logs(stream, archive, job_id, after=after, limit=10_000, complete=True):
            lines += page.lines
            if page.position == after:
                stream.close()
                return lines
            after = page.position
        return lines

    def story(self, job_id: str) -> str:
        """Everything that helps to understand what went wrong."""
        parts = [str([(event.type, event.reason, event.message) for event in self.events(job_id)])]
        for folder in self.workspace(job_id).attempts():
            for file in (folder.runner_log, folder.raw_log(0)):
                if file.exists():
                    parts.append(f"--- {file}\n{file.read_text()[-3000:]}")
        return "\n".join(parts)
