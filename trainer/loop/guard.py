"""What can end a training process from outside: a signal, or a deadline that was not moved on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.parallel.layout import Layout

EXIT_DEADLINE = 75
_CHECKS_PER_SECOND = 5
_SIGNALS = {signal.SIGTERM, signal.SIGINT}


class StopRequest:
    """Whether SIGTERM, or the first Ctrl-C, asked this process to stop after the present step.

    An instance is the `should_stop` function of `trainer.run.run_task`. A second Ctrl-C interrupts at once;
    SIGTERM may come any number of times.
    """

    def __init__(self) -> None:
        self._requested = False

    def __call__(self) -> bool:
        return self._requested

    def listen(self) -> None:
        """Install the signal handlers; only in a process's main thread."""
        signal.signal(signal.SIGTERM, self._request)
        signal.signal(signal.SIGINT, self._request)

    def listen_aside(self) -> None:
        """As `listen`, for a rank: in a thread of its own, so that no other is interrupted in a system call.

        Paddle gives up connections whose system calls are. To be called before other threads are started,
        which inherit that they are left alone.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        threading.Thread(target=self._wait, name="signals", daemon=True).start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep both signals back while the block runs, and take them over again after it.

        For code that installs handlers of its own.
        """
        held = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            yield
        finally:
            self.listen()
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def _wait(self) -> None:
        while True:
            signal.sigwait(_SIGNALS)
            self._requested = True

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class AgreedStop:
    """A `should_stop` on which all ranks agree: True everywhere once it is True on one of them.

    SIGTERM reaches ranks at different moments, but they have to stop after the same step. Every rank must
    call this equally often.

    Args:
        should_stop: of this process.
        layout: of the run.
    """

    def __init__(self, should_stop: Callable[[], bool], layout: Layout) -> None:
        self._should_stop = should_stop
        self._layout = layout
        self._agreed = False

    def __call__(self) -> bool:
        from trainer.parallel.communication import any_rank

        self._agreed = self._agreed or any_rank(self._layout, self._should_stop())
        return self._agreed


def start_deadline_guard() -> None:
    """End this process with status 75, at once, when its deadline has passed.

    ``REGATTA_DEADLINE_FILE`` names a file with a time of CLOCK_BOOTTIME in seconds as text. Its owner
    replaces it while it holds the lease on this job; when the owner is gone the deadline passes, and another
    host may start the job without two trainers ever running. A file that cannot be read leaves the last
    deadline in force. Without the variable there is no guard.
    """
    path = os.environ.get("REGATTA_DEADLINE_FILE")
    if path:
        threading.Thread(target=_watch, args=(Path(path),), name="deadline", daemon=True).start()


def _watch(path: Path) -> None:
    # Signals are the main thread's: held back there, they must not be delivered here.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    deadline: float | None = None
    while True:
        deadline = _read(path, deadline)
        if deadline is not None and time.clock_gettime(time.CLOCK_BOOTTIME) > deadline:
            os._exit(EXIT_DEADLINE)
        time.sleep(1 / _CHECKS_PER_SECOND)


def _read(path: Path, previous: float | None) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return previous
