"""Watches over the ranks of a run from before their start until none is left."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from trainer.launcher.command import launcher_command, launcher_environment
from trainer.launcher.gang import Gang
from trainer.launcher.processes import Watched, dead_ones
from trainer.launcher.records import Records
from trainer.launcher.verdict import Death, Verdict, judge, stopped_early

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.1
_END_PATIENCE_S = 10.0
_TAIL_LINES = 30
_TAIL_BYTES = 64 << 10
_LETTER_BYTES = 300


def supervise(
    gang: Gang,
    script: Path,
    arguments: Sequence[str],
    folder: Path,
    *,
    should_stop: Callable[[], bool],
    echo: BinaryIO | None = None,
) -> Verdict:
    """Run `script` in every rank of this host by Paddle's launcher, and say how that ended.

    Must be called in the main thread: the kernel ties the launcher's life to the thread that starts it. When
    this process dies, so do the launcher and the ranks; none of them outlives this call.

    Args:
        gang: how many ranks, where.
        script: gets the folder of the `Records` and `arguments` as its arguments. It has to call
            `bind_to_launcher` and `Records.begin` as early as it can, and `Records.end`.
        arguments: passed on to every rank.
        folder: where logs and records go, made with access for this user alone. What an earlier run has left
            there is removed, but for the logs of ranks, which are appended to.
        should_stop: asked all the time; once True, every rank is sent SIGTERM, once. Before any has begun,
            that ends the run as a failure, for there is no checkpoint.
        echo: gets what rank 0 writes, while it does.

    Raises:
        KeyboardInterrupt: by a second Ctrl-C; the ranks were killed.
        OSError: the launcher cannot be started.
    """
    folder = folder.absolute()
    _prepare(folder, gang)
    return _Supervisor(gang, Records(folder), should_stop, echo).run(script, arguments)


def last_lines(path: Path, count: int = _TAIL_LINES) -> list[str]:
    """The last lines of a log; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-count:]
    except FileNotFoundError:
        return []


class _Supervisor:
    """One run: the launcher, the ranks that have shown up, and who has died."""

    def __init__(
        self, gang: Gang, records: Records, should_stop: Callable[[], bool], echo: BinaryIO | None
    ) -> None:
        self._gang = gang
        self._records = records
        self._should_stop = should_stop
        self._ranks: dict[int, Watched] = {}
        self._deaths: dict[int, Death] = {}
        self._told_to_stop: set[int] = set()
        self._begun = True
        self._echo = None if echo is None else _Echo(records.raw_log(0), echo)

    def run(self, script: Path, arguments: Sequence[str]) -> Verdict:
        process = self._start(script, arguments)
        launcher = Watched(process.pid)
        try:
            self._watch(launcher)
            end = launcher.death()
        finally:
            launcher.send(signal.SIGKILL)
            status = process.wait()
            self._end_ranks()
            launcher.close()
            _remove_environments(self._records.folder)
        if self._echo is not None:
            self._echo.follow()
        if not self._begun:
            return stopped_early()
        complaint = "".join(last_lines(self._records.folder / "launcher.log", 1))[:_LETTER_BYTES]
        died = Death(end.t, status)
        return judge(self._gang.ranks, self._records.ends(), self._deaths, died, complaint)

    def _start(self, script: Path, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        folder = self._records.folder
        words = [str(folder), *arguments]
        with (folder / "launcher.log").open("wb") as log:
            process = subprocess.Popen(
                launcher_command(self._gang, folder, script, words),
                env=launcher_environment(self._gang, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # it repeats what rank 0 writes
                stderr=log,
                process_group=0,  # a Ctrl-C of the terminal is for this process alone
                preexec_fn=_dies_with(os.getpid()),
            )
        self._records.launcher_pid.write_text(f"{process.pid}\n", encoding="ascii")
        return process

    def _watch(self, launcher: Watched) -> None:
        while True:
            self._meet()
            if self._should_stop():
                self._stop(launcher)
            living = {process: rank for rank, process in self._ranks.items() if rank not in self._deaths}
            dead = dead_ones([launcher, *living], _LOOK_S)
            self._deaths |= {living[process]: process.death() for process in dead if process in living}
            if self._echo is not None:
                self._echo.follow()
            if launcher in dead:
                return

    def _meet(self) -> None:
        """Hold on to the ranks that have begun since."""
        if len(self._ranks) == self._gang.nproc:
            return
        for start in self._records.starts():
            if start.rank in self._ranks or start.rank in self._deaths:
                continue
            try:
                self._ranks[start.rank] = Watched(start.pid)
            except ProcessLookupError:
                self._deaths[start.rank] = Death(time.monotonic(), None)

    def _stop(self, launcher: Watched) -> None:
        """Pass the wish to stop on to the ranks themselves; before there is any, nothing is lost by a kill.

        The launcher would do that too, but kills a rank that takes more than 30 s for its checkpoint.
        """
        if not self._ranks:
            self._begun = False
            launcher.send(signal.SIGKILL)
        for rank, process in self._ranks.items():
            if rank not in self._told_to_stop:
                self._told_to_stop.add(rank)
                process.send(signal.SIGTERM)

    def _end_ranks(self) -> None:
        """Kill what is left of the ranks, and see all of them dead."""
        self._meet()
        for process in self._ranks.values():
            process.send(signal.SIGKILL)
        until = time.monotonic() + _END_PATIENCE_S
        while living := {p: rank for rank, p in self._ranks.items() if rank not in self._deaths}:
            for process in dead_ones(living, _LOOK_S):
                self._deaths[living[process]] = process.death()
            if time.monotonic() > until:
                break
        for process in self._ranks.values():
            process.close()


class _Echo:
    """Copies what is appended to a file."""

    def __init__(self, source: Path, target: BinaryIO) -> None:
        self._source = source
        self._target = target
        self._offset = source.stat().st_size if source.exists() else 0

    def follow(self) -> None:
        with contextlib.suppress(FileNotFoundError), self._source.open("rb") as file:
            file.seek(self._offset)
            shutil.copyfileobj(file, self._target)
            self._offset = file.tell()
            self._target.flush()


def _prepare(folder: Path, gang: Gang) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for pattern in ("start-*.json", "end-*.json", "launcher.pid", "workerlog.*"):
        for path in folder.glob(pattern):
            path.unlink()
    _remove_environments(folder)
    for local, rank in enumerate(gang.ranks):
        # The launcher names logs by the number on the host; a link leads it to that of the whole run.
        Records(folder).raw_log(rank).touch()
        (folder / f"workerlog.{local}").symlink_to(f"rank-{rank}.log")


def _remove_environments(folder: Path) -> None:
    """Remove the files into which the launcher has written the whole environment."""
    for pattern in ("envlog.*", "backup_env.*.json", "default.*.log"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _dies_with(parent: int) -> Callable[[], None]:
    """What the launcher does before its program starts: bind its life to that of this process."""
    libc = ctypes.CDLL(None, use_errno=True)

    def bind() -> None:
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != parent:
            os._exit(1)

    return bind
