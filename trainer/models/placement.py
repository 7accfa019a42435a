"""Which part of a model a process holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TensorRank:
    """A place in a group of processes that split every layer.

    Attributes:
        rank: place in the group, from 0.
        size: processes in the group, 2 or more.
        group: Paddle's communication group.
        sequence: between the split layers the tokens are split too (sequence parallelism).
    """

    rank: int
    size: int
    group: Any
    sequence: bool = False


@dataclass(frozen=True)
class Placement:
    """What of a model is in this process.

    Attributes:
        tensor: how layers are split; None: they are whole.
        stages: numbers of the stages that are here: 0 is the embedding, then one for each decoder layer, the
            last one is the final norm with the head. None: all.
    """

    tensor: TensorRank | None = None
    stages: frozenset[int] | None = None

    def has(self, stage: int) -> bool:
        """Whether a stage is here."""
        return self.stages is None or stage in self.stages


#: The whole model in one process.
WHOLE = Placement()
