"""How processes that write one directory together tell each other how far they are: by small files.

No collective is used, so threads can do it while training goes on. The processes must share the file system.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trainer.config.problems import Problem, TrainingError
from trainer.files import write_json

#: So long may none of the processes reach a new stage: a large part takes long on a slow disk.
PATIENCE_S = 7200.0

_POLL_S = 0.02
_FAILED = "failed"


class SaveError(TrainingError):
    """A checkpoint could not be written, because of another process."""

    def __init__(self, what: Path, why: str) -> None:
        hint = "The checkpoints before it are untouched; the log of that process has more."
        super().__init__(Problem(("output_dir",), f"{what} could not be written: {why}", hint))


class Marks:
    """The marks of one save.

    Args:
        folder: where the marks lie, of this save alone; the main process makes it.
        rank: of this process.
        ranks: of all that write the directory. A process that is alone writes nothing.
    """

    def __init__(self, folder: Path, rank: int, ranks: Sequence[int]) -> None:
        self._folder = folder
        self._rank = rank
        self._ranks = ranks
        self._size = len(ranks)
        self._own: dict[str, Any] = {}

    def open(self) -> None:
        """Make the folder."""
        if self._size > 1:
            self._folder.mkdir(parents=True)

    def remove(self) -> None:
        """Remove the folder, when every process has seen the last mark."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def tell(self, stage: str, content: dict[str, Any] | None = None) -> None:
        """Say that this process has reached a stage."""
        self._own[stage] = content or {}
        if self._size > 1:
            write_json(self._path(stage, self._rank), content or {})

    def fail(self, reason: str) -> bool:
        """Say that this process cannot go on, and why; returns whether the reason could be written."""
        if self._size == 1:
            return True
        path = self._path(_FAILED, self._rank)
        try:
            write_json(path, {"reason": reason})
        except OSError:
            # A full disk may still have room for an empty file.
            with contextlib.suppress(OSError):
                path.touch()
            return False
        return True

    def wait(self, stage: str, ranks: Iterable[int], what: Path) -> list[dict[str, Any]]:
        """Wait until processes have reached a stage; returns what they said.

        Args:
            what: is being written, for the error.

        Raises:
            SaveError: a process has failed, or none has come further for `PATIENCE_S`.
        """
        if self._size == 1:
            return [self._own[stage]]
        wanted = [self._path(stage, rank) for rank in ranks]
        seen, deadline = 0, time.monotonic() + PATIENCE_S
        while True:
            if failure := self.failure(what):
                raise failure
            if all(path.exists() for path in wanted):
                return [json.loads(path.read_text(encoding="utf-8")) for path in wanted]
            marks = len(list(self._folder.glob("*.json")))
            if marks != seen:
                seen, deadline = marks, time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline:
                missing = ", ".join(path.name for path in wanted if not path.exists())
                raise SaveError(what, f"nothing happened for {PATIENCE_S:.0f} s while waiting for {missing}")
            time.sleep(_POLL_S)

    def failure(self, what: Path) -> SaveError | None:
        """The failure of another process, if there is one."""
        if self._size == 1:
            return None
        for rank in self._ranks:
            path = self._path(_FAILED, rank)
            if rank == self._rank or not path.exists():
                continue
            try:
                reason = json.loads(path.read_text(encoding="utf-8"))["reason"]
            except (OSError, ValueError):
                reason = "it could not write down why (perhaps the disk is full)"
            return SaveError(what, f"process {rank} failed: {reason}")
        return None

    def _path(self, stage: str, rank: int) -> Path:
        return self._folder / f"{stage}.{rank}.json"
