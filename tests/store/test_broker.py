"""The embedded Valkey server."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from store.broker import Broker, BrokerError, ensure_broker
from store.logs import LogLine, LogStream, Position
from store.settings import Settings
from tests.store.waiting import wait_until


@pytest.fixture
def client(broker: Broker):
    with redis.Redis.from_url(broker.url) as connected:
        yield connected


def test_the_server_is_private_and_durable(broker: Broker, client) -> None:
    config = client.config_get()
    assert (config["appendonly"], config["appendfsync"]) == ("yes", "everysec")
    assert (config["maxmemory-policy"], config["port"]) == ("volatile-ttl", "0")
    assert int(config["maxmemory"]) > 0
    assert stat.S_IMODE(broker.socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(broker.directory.stat().st_mode) == 0o700


def test_the_server_has_a_session_of_its_own(broker: Broker) -> None:
    assert os.getsid(broker.pid) == broker.pid != os.getsid(0)


def test_a_second_starter_finds_the_running_server(broker: Broker, settings: Settings) -> None:
    found = ensure_broker(settings.data_dir)
    assert (broker.started, found.started) == (True, False)
    assert (found.pid, found.url) == (broker.pid, broker.url)


def test_of_many_starters_one_starts_and_the_server_outlives_them(settings: Settings) -> None:
    script = (
        "import sys, pathlib; from store.broker import ensure_broker;"
        "b = ensure_broker(pathlib.Path(sys.argv[1])); print(b.pid, b.started)"
    )
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(settings.data_dir)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    answers = [starter.communicate(timeout=60)[0].split() for starter in starters]
    found = ensure_broker(settings.data_dir)
    try:
        assert not found.started
        assert {pid for pid, _ in answers} == {str(found.pid)}
        assert sorted(started for _, started in answers) == ["False"] * 3 + ["True"]
    finally:
        found.stop()
    assert not found.is_alive()


def test_what_was_written_is_there_after_a_stop_and_after_a_kill(settings: Settings) -> None:
    for end in ("stop", "kill"):
        broker = ensure_broker(settings.data_dir)
        with redis.Redis.from_url(broker.url) as client:
            client.rpush("list", end)
        if end == "stop":
            broker.stop()
        else:
            os.kill(broker.pid, signal.SIGKILL)
            wait_until(lambda: not broker.is_alive())  # noqa: B023
    broker = ensure_broker(settings.data_dir)
    with redis.Redis.from_url(broker.url) as client:
        assert client.lrange("list", 0, -1) == [b"stop", b"kill"]
    broker.stop()


def test_logs_make_room_for_messages_when_the_memory_is_full(settings: Settings) -> None:
    broker = ensure_broker(settings.data_dir, max_memory_mb=8)
    stream = LogStream(broker.url)
    try:
        with redis.Redis.from_url(broker.url) as client:
            client.rpush("host.a", "message")
            for job in range(12):
                for seq in range(1, 21):
                    stream.append(f"job-{job}", [LogLine(1, seq, 0.0, 0, "x" * 60_000)])
            assert client.rpush("host.a", "another") == 2
        assert stream.position("job-0") is None
        assert stream.position("job-11") == Position(1, 20)
    finally:
        stream.close()
        broker.stop()


def test_stopping_twice_is_harmless(settings: Settings) -> None:
    broker = ensure_broker(settings.data_dir)
    broker.stop()
    broker.stop()
    assert not broker.is_alive()


def test_a_data_directory_with_a_long_and_odd_name_works(tmp_path: Path) -> None:
    broker = ensure_broker(tmp_path / ("long " * 20) / 'a "quoted" \\ folder')
    try:
        assert broker.is_alive()
        assert stat.S_IMODE(broker.socket.parent.stat().st_mode) == 0o700
    finally:
        broker.stop()


def test_a_data_directory_that_no_configuration_can_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="control characters"):
        ensure_broker(tmp_path / "two\nlines")
