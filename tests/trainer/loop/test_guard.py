import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.loop.guard import EXIT_DEADLINE, StopRequest

WAIT = "import time; time.sleep(60)"
GUARDED = "from trainer.loop.guard import start_deadline_guard; start_deadline_guard(); print(1, flush=True);"


def boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def start_guarded(deadline: Path, then: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "REGATTA_DEADLINE_FILE": str(deadline)}
    return subprocess.Popen(
        [sys.executable, "-c", GUARDED + then], env=environment, stdout=subprocess.PIPE, text=True
    )


def test_a_process_whose_deadline_has_passed_ends_with_75(tmp_path: Path) -> None:
    deadline = tmp_path / "deadline"
    deadline.write_text(f"{boot_time() - 1}")
    assert start_guarded(deadline, WAIT).wait(timeout=30) == EXIT_DEADLINE


def test_a_deadline_that_is_moved_on_is_followed_and_one_that_goes_missing_stays_in_force(
    tmp_path: Path,
) -> None:
    deadline = tmp_path / "deadline"
    deadline.write_text(f"{boot_time() + 600}")
    process = start_guarded(deadline, WAIT)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        deadline.unlink()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        moved = tmp_path / "moved"
        moved.write_text(f"{boot_time() - 1}")
        moved.replace(deadline)
        assert process.wait(timeout=30) == EXIT_DEADLINE
    finally:
        process.kill()
        process.wait()


def test_without_a_deadline_file_there_is_no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.loop.guard import start_deadline_guard

    monkeypatch.delenv("REGATTA_DEADLINE_FILE", raising=False)
    before = threading.active_count()
    start_deadline_guard()
    assert threading.active_count() == before


def send(number: int) -> None:
    signal.pthread_kill(threading.get_ident(), number)


@pytest.fixture
def stop_request() -> Iterator[StopRequest]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    request = StopRequest()
    request.listen()
    yield request
    for number, handler in before.items():
        signal.signal(number, handler)


def test_sigterm_asks_to_stop(stop_request: StopRequest) -> None:
    assert not stop_request()
    send(signal.SIGTERM)
    assert stop_request()


def test_the_second_interrupt_does_not_wait(stop_request: StopRequest) -> None:
    send(signal.SIGINT)
    assert stop_request()
    with pytest.raises(KeyboardInterrupt):
        send(signal.SIGINT)


INTERRUPTED = """
import ctypes, os, signal, socket, threading, time
from trainer.loop.guard import StopRequest
stop = StopRequest()
stop.listen_aside()
with stop.held():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as the import of a library does
here, there = socket.socketpair()
def later():
    time.sleep(0.3)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
    there.send(b"x")
threading.Thread(target=later).start()
poll = (ctypes.c_char * 8).from_buffer_copy(here.fileno().to_bytes(4, "little") + b"\\1\\0\\0\\0")
ready = ctypes.CDLL(None).poll(poll, 1, 20_000)  # Python's own calls go on after a signal, those of C do not
print(ready, stop())
"""


def test_a_rank_is_asked_to_stop_any_number_of_times_without_an_interrupted_system_call() -> None:
    output = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert output.stdout == "1 True\n", output.stderr


def test_a_signal_that_comes_while_others_install_their_handlers_is_not_lost(
    stop_request: StopRequest,
) -> None:
    with stop_request.held():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        send(signal.SIGTERM)
        assert not stop_request()
    assert stop_request()
