"""Following a log as it grows: no line missing, none twice, whatever happens to the broker."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from store.artifacts import LocalArtifacts
from store.broker import Broker, ensure_broker
from store.logs import START, LogArchive, LogLine, LogStream, Position, follow_logs
from store.settings import Settings
from tests.store.waiting import DEADLINE_S, wait_until

JOB = "job-1"
POLL_S = 0.05


def line(seq: int, attempt: int = 1) -> LogLine:
    return LogLine(attempt, seq, 0.0, 0, f"line {seq}")


@pytest.fixture
def archive(tmp_path: Path) -> LogArchive:
    return LogArchive(LocalArtifacts(tmp_path / "artifacts"))


class Follower:
    """Follows JOB in a thread of its own until it is told that the job is over."""

    def __init__(self, broker_url: str, archive: LogArchive, after: Position = START) -> None:
        self.seen: list[Position] = []
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(broker_url, archive, after), daemon=True)
        self._thread.start()

    def _run(self, broker_url: str, archive: LogArchive, after: Position) -> None:
        self._loop.run_until_complete(self._follow(broker_url, archive, after))

    async def _follow(self, broker_url: str, archive: LogArchive, after: Position) -> None:
        stream = LogStream(broker_url, timeout_s=0.5)
        async for batch in follow_logs(
            broker_url, stream, archive, JOB, ended=self._ended, after=after, poll_s=POLL_S
        ):
            self.seen += [one.position for one in batch]
        stream.close()

    def wait_for(self, position: Position) -> None:
        wait_until(lambda: position in self.seen)

    def end(self) -> list[Position]:
        """Say that the job is over, and wait for the rest."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the follower does not end"
        return self.seen


class Shipper:
    """Writes lines to stream and archive as a runner does, and goes on where the stream has ended."""

    def __init__(self, broker_url: str, archive: LogArchive, flush_every: int = 10) -> None:
        self._stream, self._archive, self._every = LogStream(broker_url), archive, flush_every
        self._shipped = 0
        self.written = 0

    def write(self, count: int) -> None:
        self.written += count
        if self.written % self._every == 0:
            first = self._archive.position(JOB, 1).seq + 1
            self._archive.append(JOB, [line(seq) for seq in range(first, self.written + 1)])
        with suppress(RedisError):  # what the broker does not take now is shipped later
            self._ship()

    def _ship(self) -> None:
        while self._shipped < self.written:
            batch = [line(seq) for seq in range(self._shipped + 1, self.written + 1)]
            self._shipped = self._stream.append(JOB, batch).seq


def whole(last: int) -> list[Position]:
    return [Position(1, seq) for seq in range(1, last + 1)]


def test_a_follower_gets_what_was_there_and_what_comes(broker: Broker, archive: LogArchive) -> None:
    archive.append(JOB, [line(seq) for seq in range(1, 6)])
    stream = LogStream(broker.url)
    stream.append(JOB, [line(seq) for seq in range(4, 9)])
    follower = Follower(broker.url, archive)
    follower.wait_for(Position(1, 8))
    stream.append(JOB, [line(9)])
    stream.append(JOB, [line(1, attempt=2)])
    follower.wait_for(Position(2, 1))
    assert follower.end() == [*whole(9), Position(2, 1)]


def test_a_follower_resumes_behind_its_cursor(broker: Broker, archive: LogArchive) -> None:
    stream = LogStream(broker.url)
    stream.append(JOB, [line(seq) for seq in range(1, 9)])
    follower = Follower(broker.url, archive, after=Position(1, 5))
    follower.wait_for(Position(1, 8))
    assert follower.end() == whole(8)[5:]


def test_the_last_lines_are_delivered_although_the_job_is_over(broker: Broker, archive: LogArchive) -> None:
    follower = Follower(broker.url, archive)
    archive.append(JOB, [line(seq) for seq in range(1, 2501)])
    assert follower.end() == whole(2500)


def test_lines_that_were_lost_with_a_host_do_not_hold_up_the_end(broker: Broker, archive: LogArchive) -> None:
    archive.append(JOB, [line(1), line(2)])
    LogStream(broker.url).append(JOB, [line(5)])
    follower = Follower(broker.url, archive)
    follower.wait_for(Position(1, 2))
    assert follower.end() == [Position(1, 1), Position(1, 2), Position(1, 5)]


def test_a_gap_in_the_stream_is_filled_from_the_archive(broker: Broker, archive: LogArchive) -> None:
    stream = LogStream(broker.url)
    stream.append(JOB, [line(1)])
    follower = Follower(broker.url, archive)
    follower.wait_for(Position(1, 1))
    stream.delete(JOB)
    stream.append(JOB, [line(4)])
    archive.append(JOB, [line(1), line(2), line(3)])
    follower.wait_for(Position(1, 4))
    assert follower.end() == whole(4)


def test_the_end_of_an_attempt_that_only_the_archive_has_comes_before_the_next_attempt(
    broker: Broker, archive: LogArchive
) -> None:
    stream = LogStream(broker.url)
    stream.append(JOB, [line(1)])
    follower = Follower(broker.url, archive)
    follower.wait_for(Position(1, 1))
    archive.append(JOB, [line(1), line(2), line(3)])
    stream.append(JOB, [line(1, attempt=2)])
    follower.wait_for(Position(2, 1))
    assert follower.end() == [*whole(3), Position(2, 1)]


@pytest.mark.parametrize("frozen", [False, True])
def test_without_an_answering_broker_the_archive_is_followed(
    broker: Broker, archive: LogArchive, frozen: bool, settings: Settings
) -> None:
    if frozen:
        os.kill(broker.pid, signal.SIGSTOP)
    url = broker.url if frozen else "unix:///nonexistent.sock"
    try:
        follower = Follower(url, archive)
        archive.append(JOB, [line(1)])
        follower.wait_for(Position(1, 1))
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    archive.append(JOB, [line(2)])
    follower.wait_for(Position(1, 2))
    assert follower.end() == whole(2)


def kill_and_restart(broker: Broker, settings: Settings, while_away: Callable[[], None]) -> Broker:
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: not broker.is_alive())
    while_away()
    return ensure_broker(settings.data_dir)


def test_a_kill_of_the_broker_costs_no_line_and_repeats_none(settings: Settings, archive: LogArchive) -> None:
    broker = ensure_broker(settings.data_dir)
    shipper = Shipper(broker.url, archive)
    follower = Follower(broker.url, archive)

    def write_some() -> None:
        for _ in range(30):
            shipper.write(3)

    for _ in range(3):
        write_some()
        broker = kill_and_restart(broker, settings, while_away=write_some)
        write_some()
        follower.wait_for(Position(1, shipper.written))
    broker.stop()
    assert follower.end() == whole(shipper.written)


def test_a_broker_that_comes_back_empty_costs_no_line(settings: Settings, archive: LogArchive) -> None:
    broker = ensure_broker(settings.data_dir)
    shipper = Shipper(broker.url, archive, flush_every=1)
    follower = Follower(broker.url, archive)
    shipper.write(5)
    follower.wait_for(Position(1, 5))

    def lose_everything() -> None:
        for path in (broker.directory / "appendonlydir").iterdir():
            path.unlink()
        shipper.write(5)

    broker = kill_and_restart(broker, settings, while_away=lose_everything)
    shipper.write(5)
    follower.wait_for(Position(1, 15))
    broker.stop()
    assert follower.end() == whole(15)
