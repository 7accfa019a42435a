"""Processes of other parents, watched and signalled without mistaking one for another."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from trainer.launcher.verdict import Death

_EXIT_CODE_FIELD = 50
"""Of /proc/PID/stat, counted from the field behind the name (proc(5) calls it 52 and counts from 1)."""


class Watched:
    """A process that may be a stranger's child; its number is never that of another one meanwhile."""

    def __init__(self, pid: int) -> None:
        """Hold on to a process.

        Raises:
            ProcessLookupError: there is none of this number.
        """
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def fileno(self) -> int:
        """A descriptor that is readable once the process has died."""
        return self._handle

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process is gone."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def death(self) -> Death:
        """Its death, to be asked for at once: its exit status is lost when its parent takes it."""
        return Death(time.monotonic(), _exit_status(self.pid))

    def close(self) -> None:
        os.close(self._handle)


def dead_ones(watched: Iterable[Watched], timeout_s: float) -> list[Watched]:
    """Those that have died, waiting up to `timeout_s` for the first."""
    poll = select.poll()
    known = {process.fileno(): process for process in watched}
    for descriptor in known:
        poll.register(descriptor, select.POLLIN)
    return [known[descriptor] for descriptor, _ in poll.poll(timeout_s * 1000)]


def _exit_status(pid: int) -> int | None:
    """The exit code of a process that its parent has not waited for yet, negative for a signal."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] != "Z":
        return None
    return os.waitstatus_to_exitcode(int(fields[_EXIT_CODE_FIELD - 1]))
