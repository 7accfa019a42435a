"""Many followers, slow ones, ones that leave, and the end of the server."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from store.migrate import downgrade
from store.settings import Settings
from tests.api.parts import Job, Running, ids, serving, stream, streaming, take, wait_until


@pytest.fixture
def server(settings: Settings) -> Iterator[Running]:
    with serving(settings) as server:
        yield server


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    limits = httpx.Limits(max_connections=200)
    with httpx.Client(base_url=server.url, timeout=30, limits=limits) as client:
        yield client


@pytest.fixture
def running(broker: object, job: Job) -> Job:
    job.start()
    return job


def test_all_followers_get_every_line_once(client: httpx.Client, running: Job) -> None:
    with ThreadPoolExecutor(20) as pool:
        following = [pool.submit(stream, client, f"{running.path}/logs") for _ in range(20)]
        for _ in range(100):
            running.log(20)
        running.finish()
        for follower in following:
            assert ids(follower.result()) == [f"1-{n}" for n in range(1, 2001)]


def test_followers_of_one_history_share_one_feed(server: Running, client: httpx.Client, running: Job) -> None:
    with streaming(client, f"{running.path}/logs"), streaming(client, f"{running.path}/logs"):
        wait_until(lambda: server.open_feeds == 1)
        with streaming(client, f"{running.path}/events"):
            wait_until(lambda: server.open_feeds == 2)


def test_a_follower_that_leaves_leaves_nothing_behind(
    server: Running, client: httpx.Client, running: Job
) -> None:
    for path in ("logs", "events", "metrics"):
        with streaming(client, f"{running.path}/{path}"):
            wait_until(lambda: server.open_feeds == 1)
        wait_until(lambda: server.open_feeds == 0)


def test_a_follower_that_does_not_read_holds_nobody_up(
    server: Running, client: httpx.Client, running: Job
) -> None:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port)) as lazy:
        head = f"GET {running.path}/logs?follow=true HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n"
        lazy.sendall(head.encode())
        wait_until(lambda: server.open_feeds == 1)
        for _ in range(50):
            running.log(400, width=800)  # more in all than the sockets hold
        running.finish()
        assert len(ids(stream(client, f"{running.path}/logs"))) == 20_000
        received = b""
        while b"event: end" not in received[-1000:]:
            piece = lazy.recv(1 << 20)
            assert piece
            received += piece
    assert received.count(b"event: log\n") == 20_000


def test_a_quiet_stream_is_kept_alive_by_comments(settings: Settings, running: Job) -> None:
    settings = settings.model_copy(update={"stream_ping_s": 0.1})
    with (
        serving(settings) as server,
        httpx.Client(base_url=server.url) as client,
        client.stream("GET", f"{running.path}/logs?follow=true") as response,
    ):
        received = b""
        for chunk in response.iter_bytes():
            received += chunk
            if received.count(b": ping\n\n") >= 2:
                break
    assert received.startswith(b": open\nretry: 500\n\n")


def test_the_end_of_the_server_says_bye_to_all_followers(settings: Settings, running: Job) -> None:
    running.log(1)
    said: list[str] = []
    following = threading.Barrier(9)

    def follow(client: httpx.Client, path: str) -> None:
        with streaming(client, f"{running.path}/{path}") as events:
            take(events, 1)
            following.wait(20)
            said.append([event.type for event in events][-1])

    with httpx.Client(timeout=30) as client, serving(settings) as server:
        client.base_url = server.url
        followers = [threading.Thread(target=follow, args=(client, path)) for path in ("logs", "events") * 4]
        for follower in followers:
            follower.start()
        following.wait(20)
    for follower in followers:
        follower.join(20)
    assert said == ["bye"] * 8


def test_hundreds_of_idle_followers_leave_room_for_other_calls(client: httpx.Client, running: Job) -> None:
    with ThreadPoolExecutor(120) as pool:
        following = [pool.submit(stream, client, f"{running.path}/events") for _ in range(120)]
        for _ in range(5):
            assert client.get(running.path).status_code == 200
        running.finish()
        assert all(follower.result()[-1].type == "end" for follower in following)


def test_followers_are_sent_away_while_the_database_is_away(
    client: httpx.Client, running: Job, settings: Settings
) -> None:
    with streaming(client, f"{running.path}/events") as events:
        take(events, 3)
        downgrade(settings.database_url, "base")
        assert next(events).type == "bye"
        assert next(events, None) is None
