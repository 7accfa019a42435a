"""Keep child processes running: restart those that die, and take them along when this process dies."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.rotation import rotate

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 15.0
STEADY_S = 20.0  # a child that lived this long starts again with the first pause

ROTATE_EVERY_S = 5.0

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class ChildSpec:
    """What a child runs, with which environment, and where its output and process id are written."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    pid_file: Path


class Child:
    """One supervised process.

    It runs in a session of its own, so a Ctrl-C of the terminal does not reach it before its supervisor has
    decided on the order, and the kernel kills it when its supervisor dies.
    """

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.deaths_in_a_row = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_again_at: float | None = None
        self._rotate_at = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        with self.spec.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.spec.command,
                env=dict(self.spec.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=bound_to_this_process(signal.SIGKILL),
            )
        self._started_at = time.monotonic()
        self._start_again_at = None
        write_atomically(self.spec.pid_file, f"{self._process.pid}\n")

    def tend(self) -> str | None:
        """Notice a death, start the process again when its pause is over; returns what to tell the user."""
        now = time.monotonic()
        if now >= self._rotate_at:
            self._rotate_at = now + ROTATE_EVERY_S
            rotate(self.spec.log)
        if self._process and (code := self._process.poll()) is not None:
            if now - self._started_at >= STEADY_S:
                self.deaths_in_a_row = 0
            self.deaths_in_a_row += 1
            self._process = None
            pause = restart_pause(self.deaths_in_a_row)
            self._start_again_at = now + pause
            return f"{self.spec.name} {ending(code)}; starting it again in {pause:g} s (see {self.spec.log})"
        if self._start_again_at is not None and now >= self._start_again_at:
            self.start()
        return None

    def stop(self, timeout_s: float, hurry: Callable[[], bool] = lambda: False) -> bool:
        """SIGTERM, then SIGKILL after `timeout_s` seconds or as soon as `hurry()`.

        Returns whether SIGTERM was enough.
        """
        process, self._process, self._start_again_at = self._process, None, None
        if process is None:
            self.spec.pid_file.unlink(missing_ok=True)
            return True
        process.terminate()
        deadline = time.monotonic() + timeout_s
        while process.poll() is None and time.monotonic() < deadline and not hurry():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        willing = process.poll() is not None
        if not willing:
            process.kill()
            process.wait()
        self.spec.pid_file.unlink(missing_ok=True)
        return willing


def bound_to_this_process(death_signal: signal.Signals) -> Callable[[], None]:
    """What a child runs before its program (`preexec_fn`), to get `death_signal` when this process dies.

    The kernel watches the thread that starts the child: start it in the main thread.
    """
    parent = os.getpid()

    def bind() -> None:
        # The last check closes the gap in which the parent dies before the request is in force.
        if _LIBC is not None and (_LIBC.prctl(PR_SET_PDEATHSIG, death_signal) or os.getppid() != parent):
            os._exit(1)

    return bind


def restart_pause(deaths_in_a_row: int) -> float:
    """Seconds before the next start: doubled with every death in a row, up to a limit."""
    return min(FIRST_PAUSE_S * 2 ** (deaths_in_a_row - 1), LONGEST_PAUSE_S)


def ending(code: int) -> str:
    """A process's end in words, from its exit status (negative: the signal that killed it)."""
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file so that a reader sees the old or the new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)
