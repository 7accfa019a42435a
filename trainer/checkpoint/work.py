"""One save, as each process carries it out; it may run in a thread.

The main process makes the directory and its files at full size. Then every process writes its rectangles and
syncs them, then computes checksums of its share of the files, and the main process publishes the directory.
A process that is alone computes them while the disk takes what it wrote.
Hosts that share no folder do so each for itself, with the files that the plan gives them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.checkpoint.directory import begin_directory, checksum, sync
from trainer.checkpoint.marks import Marks
from trainer.checkpoint.plan import Plan
from trainer.checkpoint.ranks import Ranks
from trainer.checkpoint.snapshot import Copied
from trainer.checkpoint.target import Target
from trainer.checkpoint.tensor_files import make_files, write_pieces

_READY, _WRITTEN, _CHECKED, _COMPLETE = "ready", "written", "checked", "complete"


@dataclass(frozen=True)
class Work:
    """What one process has to do for a save.

    Attributes:
        ranks: this process's place.
        marks: of this save.
        target: where it goes.
        plan: the same in every process.
        pieces: what this process writes.
        others: write the other files, in the main process.
        threads: how many write.
    """

    ranks: Ranks
    marks: Marks
    target: Target
    plan: Plan
    pieces: Iterable[Copied]
    others: Iterable[Callable[[Path], None]]
    threads: int = 1

    def run(self) -> None:
        """Do it; when this returns, what was saved is in its place and on the disk, in every process.

        Raises:
            SaveError: another process failed.
            Exception: this one did. Nothing is left of the directory.
        """
        try:
            self._run()
        except BaseException as error:
            failure = self.marks.failure(self.target.path)
            if failure is None:
                reason = f"{error}" or type(error).__name__
                told = self.marks.fail(reason)
                self._remove_partial()
                if not told:
                    self.marks.fail(reason)  # now there may be room
                raise
            self._remove_partial()
            # What failed here may only be a consequence of that.
            raise failure from error

    def _run(self) -> None:
        partial, everybody = self.target.partial, self.ranks.neighbours
        main = [everybody.start]
        if self.ranks.is_host_main:
            begin_directory(partial)
            make_files(partial, self.plan, self.ranks.host)
            self.marks.tell(_READY)
        self._wait(_READY, main)
        written = write_pieces(partial, self.pieces, self.threads)
        if self.ranks.is_main:
            for write in self.others:
                write(partial)
        with ThreadPoolExecutor(max(1, len(written)), "sync") as pool:
            syncing = pool.map(sync, written)
            if self.ranks.size > 1:
                list(syncing)  # others read it, perhaps on another host
            self.marks.tell(_WRITTEN)
            self._wait(_WRITTEN, everybody)
            checksums = self._checksums()
            list(syncing)
        self.marks.tell(_CHECKED, checksums)
        if self.ranks.is_host_main:
            told = self._wait(_CHECKED, everybody)
            self.target.publish({name: entry for part in told for name, entry in part.items()})
            self.marks.tell(_COMPLETE)
        self._wait(_COMPLETE, main)

    def _remove_partial(self) -> None:
        if self.ranks.is_host_main:
            shutil.rmtree(self.target.partial, ignore_errors=True)

    def _checksums(self) -> dict[str, Any]:
        if not self.target.has_manifest:
            return {}
        mine = [file.path for file in self.plan.files if file.reader == self.ranks.rank]
        with ThreadPoolExecutor(self.threads, "checksum") as pool:
            entries = pool.map(checksum, [self.target.partial / path for path in mine])
            return dict(zip(mine, entries, strict=True))

    def _wait(self, stage: str, ranks: Iterable[int]) -> list[dict[str, Any]]:
        return self.marks.wait(stage, ranks, self.target.path)
