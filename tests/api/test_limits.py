"""How much one client may ask of a server."""

import contextlib
import socket

import httpx
import pytest

from api.limits import Buckets
from store.settings import Settings
from tests.api.parts import Job, serving, streaming, wait_until


def test_a_bucket_gives_a_burst_and_then_a_steady_rate() -> None:
    now = 100.0
    buckets = Buckets(rate=2.0, burst=3, clock=lambda: now)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.take("b") == 0
    now += 0.5
    assert buckets.take("a") == 0
    assert buckets.take("a") == 0.5
    now += 1000
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    limits = {
        "requests_per_s": 0.01,
        "requests_burst": 3,
        "max_streams_per_client": 2,
        "body_timeout_s": 0.5,
    }
    return settings.model_copy(update=limits)


def test_a_client_that_asks_too_much_is_told_when_to_come_back(client: httpx.Client) -> None:
    answers = [client.get("/hosts") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[3].json()["type"] == "urn:regatta:problem:too-many-requests"
    assert 1 <= int(answers[3].headers["retry-after"]) <= 100
    assert client.get("/healthz").status_code == 200


def test_a_client_has_only_so_many_streams_and_each_that_it_closes_makes_room(
    settings: Settings, submit_free: Job
) -> None:
    free = settings.model_copy(update={"requests_per_s": 0})
    with serving(free) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        path = f"{submit_free.path}/events?follow=true"
        with contextlib.ExitStack() as open_streams:
            for _ in range(2):
                open_streams.enter_context(streaming(client, path))
            answer = client.get(path)
            assert answer.status_code == 429
            assert "REGATTA_MAX_STREAMS_PER_CLIENT" in answer.json()["detail"]
            assert client.get(f"{submit_free.path}/events").status_code == 200

        def room() -> bool:
            with client.stream("GET", path) as stream:
                return stream.status_code == 200

        wait_until(room)


@pytest.fixture
def submit_free(job: Job) -> Job:
    return job


def exchange(client: httpx.Client, data: bytes) -> bytes:
    """What the server answers to these bytes, until it closes the connection."""
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(data)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
        return answer


@pytest.mark.parametrize("path", ["/jobs/validate", "/jobs/x/clone", "/keys", "/v1/fine_tuning/jobs"])
def test_a_body_that_does_not_come_is_not_waited_for(client: httpx.Client, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    answer = exchange(client, head + b"Content-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"not complete after 0.5 s" in answer


def test_headers_without_end_are_refused(client: httpx.Client) -> None:
    answer = exchange(client, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 200_000)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert client.get("/healthz").status_code == 200
