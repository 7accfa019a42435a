"""The processes that save together."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.config.problems import ConfigError, Problem

if TYPE_CHECKING:
    from trainer.parallel.layout import Layout

#: How long a file system may take to show in one place what was written in another.
VISIBLE_WITHIN_S = 15.0


@dataclass(frozen=True)
class Ranks:
    """This process's place, and how the processes exchange small objects.

    Attributes:
        rank: 0 is the main process.
        size: number of processes.
        gather: the objects of all processes in the order of ranks; all have to call it.
    """

    rank: int
    size: int
    gather: Callable[[Any], list[Any]]

    @classmethod
    def of(cls, layout: Layout) -> Ranks:
        """The processes of a layout."""
        from trainer.parallel.communication import gather_objects

        return cls(layout.rank, layout.topology.world, lambda value: gather_objects(layout, value))

    @property
    def is_main(self) -> bool:
        return self.rank == 0


#: One process.
ALONE = Ranks(0, 1, lambda value: [value])


def check_shared_folder(ranks: Ranks, folder: Path) -> None:
    """Make sure that all processes see the same folder, in which they will write together.

    Raises:
        ConfigError: some do not; raised in all of them.
    """
    if ranks.size == 1:
        return
    mark = folder / f".{uuid.uuid4().hex}.tmp" if ranks.is_main else None
    if mark is not None:
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()
    name = next(name for name in ranks.gather(mark.name if mark else None) if name)
    host = socket.gethostname()
    blind = [host for host in ranks.gather(None if _appears(folder / name) else host) if host]
    if mark is not None:
        mark.unlink()
    if blind:
        hosts = ", ".join(sorted(set(blind)))
        raise ConfigError(
            Problem(
                ("output_dir",),
                f"{folder} of the first process is not there for {len(blind)} of {ranks.size} (on {hosts})",
                "Put it on a file system that all hosts share: every process writes its part there.",
            )
        )


def _appears(path: Path) -> bool:
    deadline = time.monotonic() + VISIBLE_WITHIN_S
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
