"""A server that speaks S3, as a process on loopback, and a gateway before it that can be shut."""

import contextlib
import http.client
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

BUCKET = "regatta-test"
SECRET = "wJalrXUtnFEMI-never-shown"
_prefixes = itertools.count(1)


@dataclass
class S3Server:
    """A running server. `url()` names a fresh prefix; `environment` is what a client needs to reach it."""

    port: int
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.environment = self.environment_at(self.port)

    @staticmethod
    def environment_at(port: int) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIATEST",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    @staticmethod
    def url() -> str:
        return f"s3://{BUCKET}/tests/{os.getpid()}-{next(_prefixes)}"

    def request(self, method: str, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        finally:
            connection.close()


@contextlib.contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    """A server with an empty bucket, ended with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "s3.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    server = S3Server(port)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                assert server.request("PUT", f"/{BUCKET}") == 200
                break
            assert process.poll() is None, (folder / "s3.log").read_text()
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait(20)


class Gateway:
    """Passes TCP connections on to a port of this machine until it is shut.

    `leave_after(n)` breaks the next connections after so many bytes of answers, `times` times.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._open: set[socket.socket] = set()
        self._breaks: list[int] = []
        self._taken = 0
        self.is_shut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def leave_after(self, answered: int, times: int = 1) -> None:
        self._breaks = [answered] * times

    def shut_after_taking(self, sent: int) -> None:
        """Shut as soon as clients have sent so many bytes more."""
        self._taken = sent

    def shut(self) -> None:
        """Close all connections, and each new one at once."""
        self.is_shut = True
        for end in list(self._open):
            _close(end)

    def reopen(self) -> None:
        self.is_shut = False

    def close(self) -> None:
        self.shut()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.is_shut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open |= {near, far}
                for work in (self._requests, self._answers):
                    threading.Thread(target=work, args=(near, far), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                far.sendall(data)
                if self._taken:
                    self._taken = max(0, self._taken - len(data))
                    if not self._taken:
                        self.shut()
        self._end(near, far)

    def _answers(self, near: socket.socket, far: socket.socket) -> None:
        answered = 0
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                near.sendall(data)
                answered += len(data)
                if self._breaks and answered >= self._breaks[0]:
                    self._breaks.pop()
                    break
        self._end(near, far)

    def _end(self, near: socket.socket, far: socket.socket) -> None:
        for end in (near, far):
            _close(end)
            self._open.discard(end)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
