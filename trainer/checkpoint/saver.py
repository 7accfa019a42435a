"""Saves directories by all processes together, at once or while training goes on."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from trainer.checkpoint.hosts import bring_together, moved
from trainer.checkpoint.marks import Marks, SaveError
from trainer.checkpoint.pieces import Contents
from trainer.checkpoint.plan import Holdings, Plan, make_plan
from trainer.checkpoint.ranks import ALONE, Ranks, check_shared_folder
from trainer.checkpoint.snapshot import Snapshot, uncopied
from trainer.checkpoint.target import Target
from trainer.checkpoint.work import Work

log = logging.getLogger(__name__)

#: So many threads at most write for a loop that waits; beside training it is one.
_THREADS = 8


class _Running:
    """A save that a thread is at.

    Args:
        work: what the thread does.
        then: to be called, in the training loop, when it is complete.
    """

    def __init__(self, work: Work, then: Callable[[], None]) -> None:
        self.marks = work.marks
        self.then = then
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"save {work.target.path.name}", daemon=True)
        self._thread.start()

    @property
    def at_end(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work.run()
        except BaseException as error:
            self.error = error


class Saver:
    """Saves what all processes hold together.

    Every process has one, and they call `save` and `close` alike. There is never more than one save at a
    time: the next one waits for the one before. What an asynchronous save writes is first copied to host
    memory, which is kept for the next one; errors are raised by the next call of any method.

    Args:
        folder: in which everything is saved; all processes must see it.
        ranks: the processes.
        asynchronous: whether `save` with `in_background` returns when the copy is made, or at the end.

    Raises:
        ConfigError: the processes do not share the folder.
    """

    def __init__(self, folder: Path, ranks: Ranks = ALONE, *, asynchronous: bool = False) -> None:
        check_shared_folder(ranks, folder)
        self._folder = folder
        self._ranks = ranks
        self._asynchronous = asynchronous
        self._snapshot = Snapshot()
        self._running: _Running | None = None
        self._seen: list[Marks] = []
        self._planned: tuple[Holdings, Plan] | None = None

    def save(
        self,
        target: Target,
        contents: Contents,
        then: Callable[[], None] = lambda: None,
        *,
        in_background: bool = True,
    ) -> None:
        """Save; with an earlier save that still runs, wait for that first.

        Args:
            target: where to.
            contents: what; of the tensors, what this process holds.
            then: called in this thread when everything is complete, in this call or a later one.
            in_background: may return before that, where the saver is asynchronous.

        Raises:
            SaveError: another process could not write its part.
            OSError: this one could not; nothing is left of what it wrote.
        """
        self.wait()
        self._meet()
        marks, plan = self._agree(target, contents)
        self._remove_seen()
        pieces = plan.pieces_of(self._ranks.rank, contents.tensors)
        arrived = moved(self._ranks, plan, contents.tensors)
        if not (self._asynchronous and in_background):
            written = itertools.chain(uncopied(pieces), arrived)
            threads = max(1, len(os.sched_getaffinity(0)) // self._ranks.size)
            Work(self._ranks, marks, target, plan, written, contents.others, min(threads, _THREADS)).run()
            self._meet()
            self._seen.append(marks)
            then()
            return
        try:
            copied = self._snapshot.take(pieces)
        except BaseException as error:
            marks.fail(f"{error}" or type(error).__name__)
            raise
        work = Work(self._ranks, marks, target, plan, [*copied, *arrived], contents.others)
        self._running = _Running(work, then)

    @property
    def is_saving(self) -> bool:
        """Whether a save is still being written."""
        return self._running is not None and not self._running.at_end

    def poll(self) -> None:
        """Take notice of a save that has come to its end; called between steps.

        Raises:
            SaveError, OSError: as `save` says.
        """
        if self._running is not None and self._running.at_end:
            self.wait()

    def wait(self) -> None:
        """Wait for a save that still runs.

        Raises:
            SaveError, OSError: as `save` says.
        """
        running, self._running = self._running, None
        if running is None:
            return
        running.join()
        self._seen.append(running.marks)
        if running.error is not None:
            raise running.error
        running.then()

    def close(self) -> None:
        """Wait for a save that still runs, and clear up; all processes call it at the end.

        Raises:
            SaveError, OSError: as `save` says.
        """
        self.wait()
        self._meet()
        self._ranks.gather(None)  # all have seen the last mark
        self._remove_seen()

    def bring_together(self, directory: Path) -> None:
        """Let every host have all files of a directory that was saved; all processes call this.

        Raises: OSError when this host has no room for them.
        """
        if self._ranks.hosts > 1:
            bring_together(self._ranks, directory)

    def abandon(self) -> Exception | None:
        """Wait for a save that still runs, after an error that is to be raised; returns what fails here."""
        try:
            self.wait()
        except Exception as error:
            log.error("a checkpoint was not saved: %s", error)
            return error
        return None

    def _meet(self) -> None:
        """Wait for the other hosts, where nothing else makes a process wait until they have written, too."""
        if self._ranks.hosts > 1:
            self._ranks.meet()

    def _agree(self, target: Target, contents: Contents) -> tuple[Marks, Plan]:
        """Make the marks and the plan of a save, which are the same in every process."""
        name, problem = f"{target.partial.stem}.{uuid.uuid4().hex}.partial", None
        marks = self._marks(name)
        if self._ranks.is_host_main:
            try:
                marks.open()
            except OSError as error:
                problem = error
        holdings = Holdings.of(contents.tensors)
        as_before = self._planned is not None and self._planned[0] == holdings
        told = self._ranks.gather((name, f"{problem or ''}", as_before))
        if problem is not None:
            raise problem
        if failed := next((found for _, found, _ in told if found), ""):
            raise SaveError(target.path, f"the main process failed: {failed}")
        marks = self._marks(told[self._ranks.neighbours.start][0])
        if self._planned is None or not all(same for _, _, same in told):
            self._planned = holdings, make_plan(self._ranks.gather(holdings), self._ranks.hosts)
        return marks, self._planned[1]

    def _marks(self, name: str) -> Marks:
        return Marks(self._folder / name, self._ranks.rank, self._ranks.neighbours)

    def _remove_seen(self) -> None:
        """Remove the marks of saves whose end every process has seen, for it has come to a later one."""
        for marks in self._seen:
            if self._ranks.is_host_main:
                marks.remove()
        self._seen.clear()
