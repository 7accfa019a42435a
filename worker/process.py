"""The trainer as a process: started so that it dies with its supervisor, stopped with everything it started.

psutil is imported where it is first needed: the supervisor starts the trainer before it loads anything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from worker.masking import Mask
from worker.memory import oom_kills
from worker.spec import DEADLINE_VARIABLE, EVENTS_VARIABLE, Spec

if TYPE_CHECKING:
    import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_OF_THE_SERVICE = ("REGATTA_", "AWS_")
"""What the names of variables begin with that a trainer has no business with."""

_libc = ctypes.CDLL(None, use_errno=True)


class Trainer:
    """A child process that leads a process group of its own.

    Must be started in the main thread: the kernel ties the parent-death signal to the thread that forked.
    """

    def __init__(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], output: IO[bytes]) -> None:
        """Start the command; stdout and stderr go straight to `output`.

        Raises:
            OSError: the command cannot be started.
        """
        supervisor = os.getpid()

        def die_with_supervisor() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:  # it died before the line above
                os._exit(1)

        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=die_with_supervisor,
        )
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs. Reaps adopted orphans too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid, status = 0, 0
            if pid == 0:
                return self._process.returncode
            if pid == self.pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)

    def terminate(self) -> None:
        """Ask the whole group to stop (SIGTERM)."""
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL the group and whatever has left it but still descends from this process."""
        self._signal_group(signal.SIGKILL)
        _kill(_descendants())

    def kill_remaining(self, timeout_s: float = 10.0) -> bool:
        """After the trainer's end, kill and reap what it left behind; False when something would not die."""
        deadline = time.monotonic() + timeout_s
        while remaining := _descendants():
            if time.monotonic() > deadline:
                return False
            _kill(remaining)
            self.poll()
            time.sleep(0.01)
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process.returncode is None:  # not reaped yet, so the group id cannot be anybody else's
            os.killpg(self.pid, number)


class TrainerStart:
    """Starts the trainer of an attempt, once, and keeps what came of it."""

    def __init__(self, spec: Spec, environment: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        self.trainer: Trainer | None = None
        self.failure: OSError | None = None
        self.oom_kills_before = 0
        self._spec = spec
        self.mask = Mask(secrets.values())
        self._environment = trainer_environment(spec, environment, secrets)

    def __call__(self, words: Sequence[str] = ()) -> None:
        """Start the trainer in its workspace; its output becomes the raw log of its first rank.

        Args:
            words: more of its command line.
        """
        self.oom_kills_before = oom_kills()
        try:
            with self._spec.folder.raw_log(self._spec.first_rank).open("ab") as output:
                workspace = Path(self._spec.workspace)
                self.trainer = Trainer((*self._spec.command, *words), workspace, self._environment, output)
        except OSError as error:
            self.failure = error


def trainer_environment(
    spec: Spec, environment: Mapping[str, str], secrets: Mapping[str, str]
) -> dict[str, str]:
    """The host's variables, without those that hold the service's addresses and secrets; the job's secrets;
    and the trainer's own, which go before all others.
    """
    inherited = {name: value for name, value in environment.items() if not name.startswith(_OF_THE_SERVICE)}
    own = {EVENTS_VARIABLE: str(spec.folder.events), DEADLINE_VARIABLE: str(spec.folder.deadline)}
    return inherited | dict(secrets) | spec.env | own


class Termination:
    """Remembers that this process was asked to end."""

    requested = False

    def install(self) -> None:
        """Catch SIGTERM and SIGINT, and let the end of a child wake the main thread."""
        signal.signal(signal.SIGTERM, self._request)
        signal.signal(signal.SIGINT, self._request)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def _request(self, _number: int, _frame: object) -> None:
        self.requested = True


def become_subreaper() -> None:
    """Let orphans among the descendants become children of this process instead of init's.

    Raises:
        OSError: the kernel refused.
    """
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _descendants() -> list[psutil.Process]:
    import psutil

    return psutil.Process().children(recursive=True)


def _kill(processes: Iterable[psutil.Process]) -> None:
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
