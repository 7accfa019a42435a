"""Finding checkpoints in an output directory, and telling whole ones from broken ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoint.directory import damage

STATE_FILE = "trainer_state.json"
_NAME = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint directory and the optimizer step in its name."""

    path: Path
    step: int

    @property
    def name(self) -> str:
        return self.path.name


def list_checkpoints(output_dir: Path) -> list[Checkpoint]:
    """The checkpoint directories of `output_dir`, whole or not, by rising step."""
    if not output_dir.is_dir():
        return []
    found = [
        Checkpoint(path, int(match[1]))
        for path in output_dir.iterdir()
        if (match := _NAME.fullmatch(path.name)) and path.is_dir()
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def checkpoint_damage(path: Path) -> str | None:
    """Why the checkpoint at `path` cannot be resumed from, in a few words, or None when it is whole."""
    if not (path / STATE_FILE).is_file():
        return f"it has no {STATE_FILE}"
    return damage(path)


def find_checkpoint(
    output_dir: Path, on_broken: Callable[[Checkpoint, str], None] | None = None
) -> Checkpoint | None:
    """The newest whole checkpoint of `output_dir`, or None.

    Args:
        output_dir: where a run saved its checkpoints.
        on_broken: called with every newer checkpoint that was passed over, and what is wrong with it.
    """
    for checkpoint in reversed(list_checkpoints(output_dir)):
        problem = checkpoint_damage(checkpoint.path)
        if problem is None:
            return checkpoint
        if on_broken is not None:
            on_broken(checkpoint, problem)
    return None
