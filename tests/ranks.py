"""Runs a function in several communicating processes, as a launcher would start them, but within a second.

Importing Paddle takes seconds, so each pytest process keeps one server that has imported it and computes
nothing (a process that computed has threads, and cannot be forked). For every call the server forks a job,
which imports the module of the function and forks the ranks.
"""

import contextlib
import ctypes
import importlib
import importlib.util
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parent.parent
PRELOADED = ("paddle.distributed.fleet", "trainer.loop.align", "trainer.loop.finetune", "pytest")
HOST = "127.0.0.1"

_SIZE = struct.Struct("!q")
_FIRST_PORT, _BLOCKS, _PORTS_PER_BLOCK = 20000, 700, 16  # below the ports that Linux gives to clients
_LOG_TAIL = 6000
_POLL_S = 0.01
_PR_SET_PDEATHSIG = 1


class RankError(AssertionError):
    """A rank raised, died or did not end in time; the text has its traceback and the logs of all ranks."""


@dataclass(frozen=True)
class _Job:
    """What a job gets: the function by module and name, its pickled arguments, and where to leave results."""

    ranks: int
    module: str
    file: str
    function: str
    arguments: bytes
    folder: Path
    timeout_s: float


def run_ranks(ranks: int, function: Callable[..., Any], *args: Any, timeout_s: float = 120) -> list[Any]:
    """Call `function(*args)` in `ranks` new processes and return their results in the order of ranks.

    Each has the variables that Paddle's launcher sets (`PADDLE_TRAINER_ID` and its like) and nothing more: no
    `fleet.init` yet. Memory is not shared with the test.

    Args:
        function: a function of a module's top level; `args` and results must be picklable.
        timeout_s: after that all ranks are killed.

    Raises:
        RankError: one of them raised, died or took too long; none of them is left.
    """
    if function.__qualname__ != function.__name__ or function.__name__ == "<lambda>":
        raise TypeError(f"{function.__qualname__} is not at the top level of its module")
    module = sys.modules[function.__module__]
    with tempfile.TemporaryDirectory(prefix="regatta-ranks-") as folder:
        job = _Job(
            ranks,
            function.__module__,
            str(module.__file__),
            function.__name__,
            pickle.dumps(args),
            Path(folder),
            timeout_s,
        )
        _server().run(job)
        return pickle.loads(_outcome(job))  # noqa: S301  (written by a process of ours)


def _outcome(job: _Job) -> bytes:
    failure = job.folder / "failure"
    if failure.exists():
        raise RankError(failure.read_text(encoding="utf-8") + "".join(_logs(job)))
    results = job.folder / "results"
    if not results.exists():
        raise RankError("the job died before its ranks were done" + "".join(_logs(job)))
    return results.read_bytes()


def _logs(job: _Job) -> Iterator[str]:
    for log in sorted(job.folder.glob("log.*")):
        text = log.read_text(encoding="utf-8", errors="replace").rstrip()
        if text:
            yield f"\n--- {log.name}\n{text[-_LOG_TAIL:]}"


class _Server:
    """The client's end of the server process."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PADDLE_")}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ranks"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, job: _Job) -> None:
        """Have the server run a job; returns when all its processes have ended.

        When that is interrupted, as by the time limit of a test, server and job are ended: the next call must
        not take this job's answer for its own.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _write(self._process.stdin, job)
            _read(self._process.stdout)
        except BaseException:
            del _servers[os.getpid()]
            self._process.kill()
            self._process.wait()
            raise


_servers: dict[int, _Server] = {}


def _server() -> _Server:
    """The server of this process; it ends when this process does, by the end of its input."""
    if os.getpid() not in _servers:
        _servers[os.getpid()] = _Server()
    return _servers[os.getpid()]


def _write(stream: BinaryIO | Any, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(_SIZE.pack(len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO | Any) -> Any:
    header = stream.read(_SIZE.size)
    if len(header) < _SIZE.size:
        raise EOFError
    return pickle.loads(stream.read(_SIZE.unpack(header)[0]))  # noqa: S301  (the other end is this module)


def serve() -> None:
    """Run jobs that come through standard input, one after the other, until it ends."""
    from trainer.ops.host import import_paddle

    _end_with_parent()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import_paddle()
    for name in PRELOADED:
        with contextlib.suppress(ImportError):  # whoever needs it meets the error again
            importlib.import_module(name)
    while True:
        try:
            job = _read(requests)
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            _as_child(lambda job=job: _run_job(job), job.folder / "log.job")
        os.waitpid(pid, 0)
        _write(answers, None)


def _as_child(work: Callable[[], None], log: Path) -> None:
    """Run `work` in a process just forked, with its output in `log`, and end the process."""
    code = 1
    try:
        _end_with_parent()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _end_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _run_job(job: _Job) -> None:
    """Fork the ranks, wait for them, and leave `results` or `failure` in the job's folder."""
    function = getattr(_import(job.module, job.file), job.function)
    arguments = pickle.loads(job.arguments)  # noqa: S301  (the other end is this module)
    with _reserved_ports(job.ranks) as ports:
        endpoints = [f"{HOST}:{port}" for port in ports]
        pids: dict[int, int] = {}
        for rank in range(job.ranks):
            pid = os.fork()
            if pid == 0:
                _as_child(
                    lambda rank=rank: _run_rank(job, rank, endpoints, function, arguments),
                    job.folder / f"log.{rank}",
                )
            pids[rank] = pid
        try:
            failure = _wait(job, dict(pids))
        finally:
            for pid in pids.values():
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
    if failure:
        (job.folder / "failure").write_text(failure, encoding="utf-8")
        return
    results = [pickle.loads(_result(job, rank).read_bytes()) for rank in range(job.ranks)]  # noqa: S301
    (job.folder / "results").write_bytes(pickle.dumps(results))


def _import(name: str, file: str) -> Any:
    """The module of a test, whose folder need not be a package."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _reserved_ports(count: int) -> Iterator[list[int]]:
    """Ports for `count` ranks that no other job on this machine is given at the same time.

    A block of ports is reserved by the name of a socket, which the kernel frees however this process ends.
    """
    assert count <= _PORTS_PER_BLOCK
    for attempt in range(_BLOCKS):
        block = (os.getpid() + attempt) % _BLOCKS
        first = _FIRST_PORT + block * _PORTS_PER_BLOCK
        ports = list(range(first, first + count))
        with socket.socket(socket.AF_UNIX) as reservation:
            try:
                reservation.bind(f"\0regatta-ports-{block}")
            except OSError:
                continue
            if all(_is_free(port) for port in ports):
                yield ports
                return
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


def _wait(job: _Job, running: dict[int, int]) -> str:
    """Wait until every rank has left its result; returns what went wrong, or nothing.

    A rank that is done stays until all are: others may still talk to it.
    """
    deadline = time.monotonic() + job.timeout_s
    while True:
        waiting = [rank for rank in running if not _result(job, rank).exists()]
        if not waiting:
            return ""
        for rank in waiting:
            pid, status = os.waitpid(running[rank], os.WNOHANG)
            if pid and not _result(job, rank).exists():
                return f"rank {rank} of {job.ranks} {_ending(job, rank, status)}"
        if time.monotonic() > deadline:
            return f"ranks {waiting} of {job.ranks} were not done after {job.timeout_s} s"
        time.sleep(_POLL_S)


def _ending(job: _Job, rank: int, status: int) -> str:
    error = job.folder / f"error.{rank}"
    if error.exists():
        return f"raised\n{error.read_text(encoding='utf-8')}"
    return f"died with exit code {os.waitstatus_to_exitcode(status)}"


def _result(job: _Job, rank: int) -> Path:
    return job.folder / f"result.{rank}"


def _run_rank(
    job: _Job, rank: int, endpoints: list[str], function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    os.environ.update(
        PADDLE_TRAINER_ID=str(rank),
        PADDLE_RANK_IN_NODE=str(rank),
        PADDLE_TRAINERS_NUM=str(job.ranks),
        PADDLE_CURRENT_ENDPOINT=endpoints[rank],
        PADDLE_TRAINER_ENDPOINTS=",".join(endpoints),
        PADDLE_DISTRI_BACKEND="gloo",
    )
    try:
        data = pickle.dumps(function(*arguments))
    except BaseException:
        (job.folder / f"error.{rank}").write_text(traceback.format_exc(), encoding="utf-8")
        return
    unfinished = job.folder / f"unfinished.{rank}"
    unfinished.write_bytes(data)
    unfinished.rename(_result(job, rank))
    while True:
        signal.pause()


if __name__ == "__main__":
    importlib.import_module("tests.ranks").serve()
