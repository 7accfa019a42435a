"""What the server does with requests that are no proper HTTP, sent byte by byte."""

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from api.protocol import LONGEST_HEAD


def _answer(client: httpx.Client, *pieces: bytes) -> bytes:
    """What comes back for these bytes, until the server closes the connection."""
    address = urlsplit(str(client.base_url))
    with socket.create_connection((address.hostname, address.port or 0), timeout=20) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except OSError:
            pass  # it was closed while we wrote
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


ENDLESS = (b"x" * 4096,) * (LONGEST_HEAD // 4096 + 64)


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ",
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n1;",
    ],
    ids=["request line", "header", "chunk extension"],
)
def test_what_does_not_end_is_cut_off(refusing_client: httpx.Client, beginning: bytes) -> None:
    answer = _answer(refusing_client, beginning, *ENDLESS)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 ")), answer[:200]
    assert refusing_client.get("/healthz").status_code == 200


def test_many_headers_are_cut_off_too(refusing_client: httpx.Client) -> None:
    headers = (b"X-Filler: " + b"y" * 1000 + b"\r\n",) * 200
    answer = _answer(refusing_client, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", *headers)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 "), answer[:200]


@pytest.mark.parametrize(
    "request_line", [b"\x16\x03\x01 hello", b"X" * 100 + b" /jobs HTTP/1.1", b"GET /jobs HTTP/9.9"]
)
def test_what_is_no_request_is_told_so(refusing_client: httpx.Client, request_line: bytes) -> None:
    answer = _answer(refusing_client, request_line + b"\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_requests_may_follow_each_other_at_once(refusing_client: httpx.Client) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    answer = _answer(refusing_client, (request + b"\r\n") * 3 + request + b"Connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 ") == 4
