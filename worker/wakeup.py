"""Lets the one waiting thread of a process be woken by signals and by other threads."""

import contextlib
import os
import select
import signal


class Wakeup:
    """A pipe that the main thread sleeps on. Signals that have a Python handler wake it by themselves."""

    def __init__(self) -> None:
        """Must be called in the main thread."""
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def set(self) -> None:
        """Wake the waiting thread, or the next one that waits."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes just as well
            os.write(self._write, b"\0")

    def wait(self, timeout_s: float) -> None:
        """Sleep until woken, at most `timeout_s` seconds."""
        readable, _, _ = select.select([self._read], [], [], max(timeout_s, 0.0))
        if readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
