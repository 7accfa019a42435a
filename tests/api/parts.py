"""A server in a thread, a worker's part played through the store, and a reader of event streams."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.server import Server
from regatta_client.sse import Event, EventParser
from store import wake
from store.artifacts import artifacts_for
from store.attempts import Node, claim, place
from store.database import Database
from store.hosts import register_host
from store.jobs import existing_job
from store.logs import LogArchive, LogLine, LogStream
from store.reasons import Reason
from store.reports import Outcome, finish, report
from store.settings import Settings
from store.states import Status

DEADLINE_S = 20.0

on_both_databases = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
"""Runs a test that uses a server of its own on SQLite and on PostgreSQL."""


@dataclass
class Running:
    """A server that runs in a thread of this process."""

    url: str
    server: Server

    @property
    def open_feeds(self) -> int:
        return len(self.server.app.state.service.hub)


@contextmanager
def serving(settings: Settings, port: int = 0) -> Iterator[Running]:
    """A real server on a free loopback port; ended as a signal would end it."""
    server = Server(create_app(settings), "127.0.0.1", port)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Running(f"http://127.0.0.1:{port}", server)
    finally:
        server.should_exit = True
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "the server did not end"


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


class Job:
    """One job, moved on as its worker would."""

    def __init__(self, job_id: str, database: Database, settings: Settings) -> None:
        self.id = job_id
        self.path = f"/jobs/{job_id}"
        self._database = database
        self._settings = settings
        self._offset = 0
        self._lines = 0
        self.attempt = 1
        self.artifacts = artifacts_for(settings.artifacts_url)
        self.archive = LogArchive(self.artifacts)
        self.stream = LogStream(settings.broker_url)

    def start(self) -> None:
        """Place the job on a host that claims it and says that training has begun."""
        with self._database.transaction() as session:
            register_host(session, "pier", device="cpu", devices=[{"index": 0}])
            job = existing_job(session, self.id)
            self.attempt = job.attempt
            self._offset = self._lines = 0
            assert place(session, job, [Node("pier", (0,))])
            assert claim(session, self.id, self.attempt, "pier", "runner", ttl_s=60)
        self.say({"t": 1.0, "type": "progress", "step": 0, "total_steps": 4, "epoch": 0.0})

    def say(self, *events: dict[str, Any]) -> None:
        """Report what the trainer wrote to its event file."""
        start, self._offset = self._offset, self._offset + len(events)
        with self._database.transaction() as session:
            assert report(session, self.id, self.attempt, "runner", events, self._offset, start=start)
        self.nudge()

    def step(self, *steps: int) -> None:
        """Report the numbers of training steps."""
        self.say(*({"t": 1.0 + n, "type": "metric", "step": n, "loss": 4.0 - n / 10} for n in steps))

    def publish(self, name: str, folder: Path, **event: Any) -> None:
        """Publish a folder as a checkpoint, or as the result."""
        key = f"jobs/{self.id}/checkpoints/{self.attempt}/{name}"
        files = self.artifacts.publish_directory(folder, key).files
        kind = {"type": "result"} if name == "result" else {"type": "checkpoint", "name": name}
        self.say({"t": 2.0, "key": key, "files": [file.as_dict() for file in files]} | kind | event)

    def lines(self, count: int, rank: int = 0, width: int = 0) -> list[LogLine]:
        """The next lines of the log, at least so wide, not written anywhere yet."""
        first, self._lines = self._lines + 1, self._lines + count
        return [
            LogLine(self.attempt, seq, 1.0, rank, f"line {self.attempt}-{seq}".ljust(width, "."))
            for seq in range(first, first + count)
        ]

    def log(self, count: int, rank: int = 0, width: int = 0) -> None:
        """Write lines to the live stream and the archive."""
        lines = self.lines(count, rank, width)
        self.stream.append(self.id, lines)
        self.archive.append(self.id, lines)

    def finish(self, status: Status = Status.succeeded, reason: Reason = Reason.completed) -> None:
        with self._database.transaction() as session:
            assert finish(session, self.id, self.attempt, "runner", Outcome(status, reason))
        self.nudge()

    def nudge(self) -> None:
        wake.wake(self._settings.broker_url, wake.job_channel(self.id))


@contextmanager
def streaming(client: httpx.Client, path: str, **options: Any) -> Iterator[Iterator[Event]]:
    """The events of a stream as they arrive."""
    headers = {"accept": "text/event-stream"} | options.pop("headers", {})
    with client.stream("GET", path, headers=headers, **options) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        parser = EventParser()
        yield (event for chunk in response.iter_bytes() for event in parser.feed(chunk))


def stream(client: httpx.Client, path: str, **options: Any) -> list[Event]:
    """All events of a stream, up to and with its last one."""
    with streaming(client, path, **options) as events:
        return list(events)


def take(events: Iterator[Event], count: int) -> list[Event]:
    return [next(events) for _ in range(count)]


def ids(events: Sequence[Event]) -> list[str]:
    """The ids of the events that carry data; `end` and `bye` repeat the last one's."""
    return [event.id for event in events if event.type not in ("end", "bye")]


def places(answer: httpx.Response) -> list[tuple[str | int, ...]]:
    """Where the problems of a 422 are."""
    assert answer.status_code == 422, answer.text
    return [tuple(error["loc"]) for error in answer.json()["errors"]]


def data(event: Event) -> Any:
    return json.loads(event.data)
