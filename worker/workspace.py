"""Where a job's files lie on a host. Standard library only.

<work_dir>/<job id>/
    config.json             the resolved argument file; relative paths in it start here
    inputs/<name>/          what the job uses of other jobs and of data sets (see `worker.inputs`)
    output/                 whatever the config names as its output_dir
    attempts/<n>/
        spec.json           what the runner of this attempt needs to know
        events.jsonl        written by the trainer (REGATTA_EVENTS)
        deadline            after which the trainer must not go on (REGATTA_DEADLINE_FILE)
        rank-<r>.log        stdout and stderr of rank r, byte for byte; of several processes the trainer
                            itself keeps more files here (see `trainer.launcher`)
        spool.jsonl         the lines of all ranks, numbered: what was and will be shipped
        runner.log          what the runner has to say about itself
        delivered           there when nothing of this attempt is left to report
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

ATTEMPTS = "attempts"


@dataclass(frozen=True)
class AttemptFolder:
    """The files of one attempt."""

    path: Path

    @property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def deadline(self) -> Path:
        return self.path / "deadline"

    @property
    def spool(self) -> Path:
        return self.path / "spool.jsonl"

    @property
    def runner_log(self) -> Path:
        return self.path / "runner.log"

    @property
    def delivered(self) -> Path:
        return self.path / "delivered"

    def raw_log(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.log"

    def has_begun(self) -> bool:
        """Whether a process of a trainer with several has begun on this host."""
        return any(self.path.glob("start-*.json"))

    def ranks(self) -> list[int]:
        """The ranks that have written output on this host."""
        found = (re.fullmatch(r"rank-(\d+)\.log", entry.name) for entry in self.path.iterdir())
        return sorted(int(match[1]) for match in found if match)


@dataclass(frozen=True)
class Workspace:
    """The folder of one job on this host."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def inputs(self) -> Path:
        return self.path / "inputs"

    def attempt(self, number: int) -> AttemptFolder:
        return AttemptFolder(self.path / ATTEMPTS / str(number))

    def attempts(self) -> list[AttemptFolder]:
        """All attempts that ran on this host, oldest first."""
        parent = self.path / ATTEMPTS
        if not parent.is_dir():
            return []
        return [self.attempt(n) for n in sorted(int(e.name) for e in parent.iterdir() if e.name.isdigit())]

    def inside(self, path: str | Path) -> Path | None:
        """The absolute path with symbolic links resolved; None when it lies outside the workspace."""
        root = self.path.resolve()
        resolved = (root / path).resolve()
        return resolved if resolved.is_relative_to(root) else None


def write_atomically(path: Path, text: str) -> None:
    """Replace the file so that readers see the old text or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
