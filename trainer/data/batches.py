"""From examples to batches: epoch order, optimizer steps, padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.data.sft import IGNORE, Example


@dataclass(frozen=True)
class Batch:
    """One micro-batch, padded to its longest example (or to a fixed length).

    Attributes:
        input_ids: int64 [examples, length].
        labels: int64 [examples, length], shifted, -100 where nothing is learned.
        attention_mask: int64 [examples, length], 1 = real token, 0 = padding.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    attention_mask: np.ndarray

    @property
    def examples(self) -> int:
        return len(self.input_ids)

    @property
    def tokens(self) -> int:
        """Real (not padding) input tokens."""
        return int(self.attention_mask.sum())

    @property
    def label_tokens(self) -> int:
        return int((self.labels != IGNORE).sum())


@dataclass(frozen=True)
class Collator:
    """Pads examples to one rectangle.

    `side` is where the padding goes ("left" or "right"). `length` fixes the width; without it the width is
    the longest example's, rounded up to a multiple of `multiple_of`.
    """

    pad_id: int
    side: str
    length: int | None = None
    multiple_of: int | None = None

    def __call__(self, examples: Sequence[Example]) -> Batch:
        longest = max(example.length for example in examples)
        width = max(longest, self.length or 0)
        if self.multiple_of:
            width = -(-width // self.multiple_of) * self.multiple_of
        shape = (len(examples), width)
        input_ids = np.full(shape, self.pad_id, dtype=np.int64)
        labels = np.full(shape, IGNORE, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        for row, example in enumerate(examples):
            place = slice(width - example.length, width) if self.side == "left" else slice(0, example.length)
            input_ids[row, place] = example.input_ids
            labels[row, place] = example.labels
            mask[row, place] = 1
        return Batch(input_ids, labels, mask)


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of `count` examples in an epoch: a permutation that depends on nothing but seed and epoch."""
    return np.random.default_rng((seed, epoch)).permutation(count)


def epoch_steps(
    order: Sequence[int] | np.ndarray, consumed: int, batch_size: int, accumulation: int, drop_last: bool
) -> Iterator[list[np.ndarray]]:
    """The optimizer steps left in an epoch after its first `consumed` examples.

    Yields, for each step, its micro-batches: index arrays of `batch_size` examples, `accumulation` of them.
    What is left at the end makes a smaller micro-batch (unless `drop_last`) and a shorter step.
    """
    rest = order[consumed:]
    end = len(rest) // batch_size * batch_size if drop_last else len(rest)
    stride = batch_size * accumulation
    for start in range(0, end, stride):
        step = rest[start : min(start + stride, end)]
        yield [np.asarray(step[at : at + batch_size]) for at in range(0, len(step), batch_size)]
