"""Many followers of one job's log, an API in a process of its own, and a writer that never rests."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from store.attempts import Node, claim, place
from store.database import Database
from store.hosts import register_host
from store.jobs import NewJob, create_job, existing_job
from store.logs import LogArchive, LogLine, LogStream
from store.reports import Outcome, finish, report
from store.settings import Settings
from store.states import Reason, Status
from store.wake import job_channel, wake

BATCH_S = 0.05
SEGMENT_S = 1.0
GIVE_UP_S = 120.0

_LINE = re.compile(rb"id: 1-(\d+)\nevent: log\n")
_WRITTEN = re.compile(rb'"line":"written ([0-9.]+) ')
_LAST = re.compile(rb"event: (end|bye)\n")


class Api:
    """`regatta api` as a process; `restart` ends it as a deployment does."""

    def __init__(self, settings: Settings, port: int, log: Path) -> None:
        self.port = port
        self.cpu_s = 0.0
        self.most_bytes = 0
        self._log = log
        self._environment = os.environ | {
            "REGATTA_DATA_DIR": str(settings.data_dir),
            "REGATTA_DATABASE_URL": settings.database_url,
            "REGATTA_BROKER_URL": settings.broker_url,
            "REGATTA_POLL_S": "0.2",
        }
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "cli", "api", "--port", str(self.port)]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def restart(self) -> float:
        """Stop and start; seconds until the old process was gone."""
        begin = time.monotonic()
        self.stop()
        ended = time.monotonic() - begin
        self._process = self._start()
        return ended

    def stop(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            self.cpu_s += sum(process.cpu_times()[:2])
            self.most_bytes = max(self.most_bytes, process.memory_info().rss)
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


class Writer(threading.Thread):
    """Writes numbered lines at a steady rate as a runner does: to the stream, in segments to the archive."""

    def __init__(
        self, settings: Settings, archive: LogArchive, job_id: str, *, per_second: int, total: int
    ) -> None:
        super().__init__(daemon=True)
        self._stream = LogStream(settings.broker_url, entries=settings.log_stream_entries)
        self._archive = archive
        self._job_id = job_id
        self._per_second = per_second
        self.total = total
        self.seconds = 0.0

    def run(self) -> None:
        begin = time.monotonic()
        written, segment = 0, []
        while written < self.total:
            due = min(self.total, int((time.monotonic() - begin + BATCH_S) * self._per_second))
            lines = [
                LogLine(1, seq, time.time(), 0, f"written {time.time():.3f} step {seq:>70}")
                for seq in range(written + 1, due + 1)
            ]
            if lines:
                self._stream.append(self._job_id, lines)
                segment += lines
                written = due
            if len(segment) >= self._per_second * SEGMENT_S or written == self.total:
                self._archive.append(self._job_id, segment)
                segment = []
            time.sleep(max(0.0, begin + written / self._per_second - time.monotonic()))
        self.seconds = time.monotonic() - begin


@dataclass
class Follower:
    """One client: follows to the end, over every cut, and notes what is not the next line."""

    port: int
    path: str
    last: int = 0
    faults: list[str] = field(default_factory=list)
    connections: int = 0
    goodbyes: int = 0
    ended: bool = False
    delays_s: list[float] = field(default_factory=list)

    async def run(self, cut_after: int) -> None:
        """Follow; leave once of one's own accord after so many lines."""
        deadline = time.monotonic() + GIVE_UP_S
        while not self.ended and time.monotonic() < deadline:
            with contextlib.suppress(OSError, EOFError, asyncio.IncompleteReadError):
                await self._follow(cut_after if self.connections == 0 else sys.maxsize)
            await asyncio.sleep(0.05)

    async def _follow(self, cut_after: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        try:
            resume = f"Last-Event-ID: 1-{self.last}\r\n" if self.last else ""
            head = f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{resume}\r\n"
            writer.write(head.encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in answer.split(b"\r\n", 1)[0]:
                self.faults.append(answer[:40].decode())
                return
            self.connections += 1
            rest = b""
            while (size := int(await reader.readline(), 16)) > 0:
                data = rest + (await reader.readexactly(size + 2))[:-2]
                whole = data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
                rest = data[whole:]
                self._take(data[:whole])
                if self.last >= cut_after:
                    return
        finally:
            writer.close()

    def _take(self, data: bytes) -> None:
        for seq in _LINE.findall(data):
            if int(seq) != self.last + 1:
                self.faults.append(f"{seq.decode()} after {self.last}")
            self.last = int(seq)
        if written := _WRITTEN.search(data, max(0, data.rfind(b"id: "))):
            self.delays_s.append(time.time() - float(written[1]))
        if last := _LAST.search(data):
            self.ended = last[1] == b"end"
            self.goodbyes += last[1] == b"bye"


def running_job(database: Database) -> str:
    """A job whose attempt 1 is running."""
    with database.transaction() as session:
        register_host(session, "pier", device="cpu", devices=[{"index": 0}])
        job = create_job(session, NewJob("finetune", {}, {}))
        assert place(session, existing_job(session, job.id), [Node("pier", (0,))])
        assert claim(session, job.id, 1, "pier", "runner", ttl_s=600)
        event = {"t": 1.0, "type": "progress", "step": 0}
        assert report(session, job.id, 1, "runner", [event], 1, start=0)
        return job.id


def end_job(database: Database, settings: Settings, job_id: str) -> None:
    with database.transaction() as session:
        outcome = Outcome(Status.succeeded, Reason.completed)
        assert finish(session, job_id, 1, "runner", outcome)
    wake(settings.broker_url, job_channel(job_id))


@contextlib.contextmanager
def running_api(settings: Settings, port: int, log: Path) -> Iterator[Api]:
    api = Api(settings, port, log)
    try:
        yield api
    finally:
        api.stop()


async def follow_together(followers: list[Follower], total: int) -> None:
    """Run all; each leaves once, at another line."""
    count = len(followers)
    await asyncio.gather(
        *(follower.run(total * (n + 1) // (2 * count)) for n, follower in enumerate(followers))
    )
