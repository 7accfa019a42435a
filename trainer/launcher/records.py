"""What the ranks of a run tell their supervisor: small files in a folder. Standard library only."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Start:
    """A rank has begun and listens to SIGTERM."""

    rank: int
    pid: int


@dataclass(frozen=True)
class End:
    """A rank has come to its end by itself.

    Attributes:
        rank: the rank.
        t: when, in seconds of CLOCK_MONOTONIC, which all processes of a host share.
        exit_code: what it exits with; see `trainer.run`.
        kind, msg, problems: why it failed, as in an ``error`` event; empty when it did not.
    """

    rank: int
    t: float
    exit_code: int
    kind: str = ""
    msg: str = ""
    problems: tuple[dict[str, Any], ...] = ()


class Records:
    """The files of one run's ranks on this host.

    Args:
        folder: a folder that only this run uses.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def launcher_pid(self) -> Path:
        """Holds the process id of Paddle's launcher."""
        return self.folder / "launcher.pid"

    def raw_log(self, rank: int) -> Path:
        """What a rank wrote to stdout and stderr."""
        return self.folder / f"rank-{rank}.log"

    def begin(self, rank: int) -> None:
        """Say that this process is a rank that may be asked to stop from now on."""
        self._write(f"start-{rank}.json", asdict(Start(rank, os.getpid())))

    def end(
        self,
        rank: int,
        exit_code: int,
        kind: str = "",
        msg: str = "",
        problems: tuple[dict[str, Any], ...] = (),
    ) -> None:
        """Say how a rank ends. Only the first call counts."""
        name = f"end-{rank}.json"
        if not (self.folder / name).exists():
            self._write(name, asdict(End(rank, time.monotonic(), exit_code, kind, msg, problems)))

    def starts(self) -> list[Start]:
        """The ranks that have begun so far."""
        return [Start(**fields) for fields in self._read("start-*.json")]

    def ends(self) -> list[End]:
        """The ends that were told so far."""
        found = self._read("end-*.json")
        return [End(**{**fields, "problems": tuple(fields["problems"])}) for fields in found]

    def _write(self, name: str, fields: dict[str, Any]) -> None:
        temporary = self.folder / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(fields), encoding="utf-8")
        temporary.replace(self.folder / name)

    def _read(self, pattern: str) -> list[dict[str, Any]]:
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.folder.glob(pattern))]
