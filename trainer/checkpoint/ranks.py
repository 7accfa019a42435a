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
        hosts: how many hosts there are, where they share no folder; else 1. Each has as many processes.
        meet: waits for all processes, however late one comes; all have to call it.
    """

    rank: int
    size: int
    gather: Callable[[Any], list[Any]]
    hosts: int = 1
    meet: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, layout: Layout) -> Ranks:
        """The processes of a layout."""
        from trainer.parallel.communication import gather_objects, meet

        return cls(
            layout.rank,
            layout.topology.world,
            lambda value: gather_objects(layout, value),
            layout.separate_hosts,
            lambda: meet(layout),
        )

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def host(self) -> int:
        """Number of this process's host, among those that share no folder."""
        return self.host_of(self.rank)

    @property
    def neighbours(self) -> range:
        """The processes that see the same folder, this one among them."""
        size = self.size // self.hosts
        return range(self.host * size, (self.host + 1) * size)

    @property
    def is_host_main(self) -> bool:
        """Whether this is the first of them."""
        return self.rank == self.neighbours.start

    def host_of(self, rank: int) -> int:
        """The host of a process."""
        return rank // (self.size // self.hosts)


#: One process.
ALONE = Ranks(0, 1, lambda value: [value])


def check_shared_folder(ranks: Ranks, folder: Path) -> None:
    """Make sure that all processes (of a host) see the same folder, in which they will write together.

    Raises:
        ConfigError: some do not; raised in all of them.
    """
    if ranks.size == 1:
        return
    mark = folder / f".{uuid.uuid4().hex}.tmp" if ranks.is_host_main else None
    if mark is not None:
        folder.mkdir(parents=True, exist_ok=True)
        mark.touch()
    name = ranks.gather(mark.name if mark else None)[ranks.neighbours.start]
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
