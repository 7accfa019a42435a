"""From rows of examples to batches: epoch order, optimizer steps, padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from trainer.data.packing import Row
from trainer.data.sft import IGNORE


@dataclass(frozen=True)
class Batch:
    """One micro-batch, padded to its longest row (or to a fixed length).

    Attributes:
        input_ids: int64 [rows, length].
        labels: int64 [rows, length], shifted, -100 where nothing is learned.
        documents: int64 [rows, length], 0 = padding, else the number (from 1) of the example in its row.
        position_ids: int64 [rows, length], from 0 in every example.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    documents: np.ndarray
    position_ids: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.input_ids)

    @property
    def examples(self) -> int:
        return int(self.documents.max(axis=1).sum())

    @property
    def tokens(self) -> int:
        """Real (not padding) input tokens."""
        return int(np.count_nonzero(self.documents))

    @property
    def label_tokens(self) -> int:
        return int((self.labels != IGNORE).sum())


@dataclass(frozen=True)
class Collator:
    """Pads rows to one rectangle.

    `side` is where the padding goes ("left" or "right"). `length` fixes the width; without it the width is
    the longest row's, rounded up to a multiple of `multiple_of`.
    """

    pad_id: int
    side: str
    length: int | None = None
    multiple_of: int | None = None

    def __call__(self, rows: Sequence[Row]) -> Batch:
        longest = max(row.length for row in rows)
        width = max(longest, self.length or 0)
        if self.multiple_of:
            width = -(-width // self.multiple_of) * self.multiple_of
        shape = (len(rows), width)
        batch = Batch(
            input_ids=np.full(shape, self.pad_id, dtype=np.int64),
            labels=np.full(shape, IGNORE, dtype=np.int64),
            documents=np.zeros(shape, dtype=np.int64),
            position_ids=np.zeros(shape, dtype=np.int64),
        )
        for number, row in enumerate(rows):
            start = width - row.length if self.side == "left" else 0
            for document, part in enumerate(row.parts, start=1):
                place = number, slice(start, start + part.length)
                batch.input_ids[place] = part.input_ids
                batch.labels[place] = part.labels
                batch.documents[place] = document
                batch.position_ids[place] = np.arange(part.length)
                start += part.length
        return batch


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of `count` rows in an epoch: a permutation that depends on nothing but seed and epoch."""
    return np.random.default_rng((seed, epoch)).permutation(count)


@dataclass(frozen=True)
class StepRows:
    """The micro-batches of one optimizer step, and whether it is the last one of its epoch."""

    parts: list[list[Row]]
    last: bool


def epoch_steps(
    rows: Iterable[Row], batch_size: int, accumulation: int, drop_last: bool
) -> Iterator[StepRows]:
    """The optimizer steps of the rows that are left in an epoch.

    A step has `accumulation` micro-batches of `batch_size` rows. What is left at the end makes a smaller
    micro-batch (unless `drop_last`) and a shorter step.
    """
    stream = iter(rows)

    def take() -> list[Row]:
        taken = list(islice(stream, batch_size * accumulation))
        return taken[: len(taken) // batch_size * batch_size] if drop_last else taken

    step = take()
    while step:
        following = take()
        parts = [step[at : at + batch_size] for at in range(0, len(step), batch_size)]
        yield StepRows(parts, last=not following)
        step = following
