"""A rank's ties to the processes that started it. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal

from trainer.launcher.records import Records

EXIT_ORPHAN = 1
_PR_SET_PDEATHSIG = 1


def bind_to_launcher(records: Records) -> None:
    """Let the kernel kill this process when Paddle's launcher dies, which by itself leaves its ranks running.

    Ends this process when the launcher is gone already.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    launcher = int(records.launcher_pid.read_text(encoding="ascii"))
    if os.getppid() != launcher:  # it died before the request was in force
        os._exit(EXIT_ORPHAN)


def global_rank() -> int:
    """This process's rank among those of all hosts, as the launcher has told it."""
    return int(os.environ["PADDLE_TRAINER_ID"])
