"""The parts of a service on one machine, kept running together: Valkey, API, scheduler and worker."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import httpx
from rich.console import Console
from sqlalchemy.exc import SQLAlchemyError

from cli.database import migrate_database
from cli.runners import stop_jobs_of
from cli.supervisor import Child, ChildSpec, write_atomically
from store.broker import Broker, BrokerError, ensure_broker
from store.database import Database
from store.hosts import list_hosts
from store.settings import Settings
from worker.strays import live_runners

CHECK_BROKER_EVERY_S = 0.5
DEATHS_THAT_MEAN_BROKEN = 3
STOP_TIMEOUT_S = 15.0


class LocalService:
    """Everything `regatta up` runs. Not thread-safe: children are bound to the thread that starts them."""

    def __init__(self, settings: Settings, screen: Console) -> None:
        self.settings = settings
        self.run_dir = settings.data_dir / "run"
        self.log_dir = settings.data_dir / "logs"
        self.url = url_of(settings.api_host, settings.api_port)
        self._screen = screen
        self._broker: Broker | None = None
        self._check_broker_at = 0.0
        self._api, self._scheduler, self._worker = map(self._child, ("api", "scheduler", "worker"))
        self._children = (self._api, self._scheduler, self._worker)
        self._http = httpx.Client(trust_env=False, timeout=2)
        self._database = Database(settings.database_url)

    def start(self) -> None:
        """Start the broker, bring the database up to date, start the children.

        Raises:
            BrokerError: the embedded server does not start.
            CliError: the database cannot be used.
        """
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._ensure_broker()
        migrate_database(self.settings.database_url)
        for child in self._children:
            child.start()

    def tend(self) -> None:
        """Restart what has died. To be called a few times a second."""
        for child in self._children:
            if said := child.tend():
                self._say(said)
        if self._broker and time.monotonic() >= self._check_broker_at:
            self._tend_broker(self._broker)

    def is_ready(self) -> bool:
        """Whether /readyz is green and the worker that runs now has offered this host's devices."""
        with contextlib.suppress(httpx.HTTPError, SQLAlchemyError):
            if self._http.get(f"{self.url}/readyz").status_code == httpx.codes.OK:
                with self._database.reading() as session:
                    return any(
                        host.info.get("worker_pid") == self._worker.pid for host in list_hosts(session)
                    )
        return False

    def broken_part(self) -> Child | None:
        """A child that has died several times in a row, if there is one."""
        return next(
            (child for child in self._children if child.deaths_in_a_row >= DEATHS_THAT_MEAN_BROKEN), None
        )

    def stop(self, hurry: Callable[[], bool]) -> None:
        """End everything: nothing new is placed, running jobs save a checkpoint, then API and broker follow.

        `hurry` turning true ends the waiting for what has not ended yet.

        Raises:
            BrokerError: the embedded server does not end.
        """
        with contextlib.ExitStack() as parts:  # in reverse, and each whatever becomes of the others
            parts.callback(self._stop_broker)
            parts.callback(self._http.close)
            parts.callback(self._database.dispose)
            parts.callback(self._api.stop, STOP_TIMEOUT_S, hurry)
            parts.callback(self._stop_jobs, hurry)
            parts.callback(self._worker.stop, STOP_TIMEOUT_S, hurry)
            parts.callback(self._scheduler.stop, STOP_TIMEOUT_S, hurry)

    def _stop_jobs(self, hurry: Callable[[], bool]) -> None:
        runners = live_runners(self.settings.work_dir)
        if runners:
            self._say(
                f"stopping {len(runners)} running job(s) with a checkpoint; Ctrl-C again does not wait for it"
            )
            stop_jobs_of(self.settings, hurry)
            if hurry():
                self._say("not waiting: such a job goes on from its last checkpoint after the next start")

    def _stop_broker(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._valkey_pid_file.unlink(missing_ok=True)

    def _tend_broker(self, broker: Broker) -> None:
        self._check_broker_at = time.monotonic() + CHECK_BROKER_EVERY_S
        if broker.is_alive():
            return
        try:
            self._ensure_broker()
            self._say("valkey was gone; it runs again")
        except BrokerError as error:
            self._say(f"valkey is gone and does not start: {error}")

    def _ensure_broker(self) -> None:
        """Start or find the embedded server; with REGATTA_BROKER_URL the operator's own server is used."""
        if os.environ.get("REGATTA_BROKER_URL"):
            return
        self._broker = ensure_broker(self.settings.data_dir)
        write_atomically(self._valkey_pid_file, f"{self._broker.pid}\n")

    @property
    def _valkey_pid_file(self) -> Path:
        return self.run_dir / "valkey.pid"

    def _child(self, name: str) -> Child:
        settings = self.settings
        given = {
            "REGATTA_DATA_DIR": str(settings.data_dir),
            "REGATTA_API_HOST": settings.api_host,
            "REGATTA_API_PORT": str(settings.api_port),
            "REGATTA_DEVICES": settings.devices,
            "REGATTA_MODEL_ROOTS": json.dumps([str(path) for path in settings.model_roots]),
            "REGATTA_DATA_ROOTS": json.dumps([str(path) for path in settings.data_roots]),
        }
        command = [sys.executable, "-P", "-m", "cli", name]
        return Child(
            ChildSpec(
                name, command, os.environ | given, self.log_dir / f"{name}.log", self.run_dir / f"{name}.pid"
            )
        )

    def _say(self, text: str) -> None:
        self._screen.print(f"{datetime.now():%H:%M:%S} {text}", soft_wrap=True)


def url_of(host: str, port: int) -> str:
    """The address for clients on this machine; a server that listens everywhere is reached on loopback."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  (compared, not bound)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
