"""What training reads: the rows of each epoch, from memory in a random order or streamed in file order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from trainer.config.problems import DataError
from trainer.data.batches import epoch_order
from trainer.data.dataset import NAMED, Split, nothing_to_learn, why_nothing_is_learned
from trainer.data.packing import Row, pack, padding_share

if TYPE_CHECKING:
    from trainer.config.records import SftRecord
    from trainer.config.schema import SftConfig
    from trainer.data.encoding import Encoder
    from trainer.data.sft import Example

log = logging.getLogger(__name__)


class TrainingRows(Protocol):
    """The training data, epoch by epoch."""

    @property
    def count(self) -> int | None:
        """Rows of an epoch; None when that shows only at its end."""
        ...

    def epoch(self, number: int, consumed: int) -> Iterator[Any]:
        """The rows of epoch `number` (from 0) after the first `consumed` ones, as the task's collator takes
        them.
        """
        ...

    def fingerprint(self) -> str:
        """A text that is the same only for the same rows."""
        ...


@dataclass(frozen=True)
class MemoryRows:
    """Rows in memory; each epoch has an order of its own that depends on nothing but seed and epoch."""

    rows: Sequence[Any]
    seed: int
    content: str

    @property
    def count(self) -> int | None:
        return len(self.rows)

    def epoch(self, number: int, consumed: int) -> Iterator[Any]:
        for index in epoch_order(len(self.rows), self.seed, number)[consumed:]:
            yield self.rows[index]

    def fingerprint(self) -> str:
        return self.content


@dataclass(frozen=True)
class StreamedRows:
    """Rows that are made while they are read, in the order of the files, in every epoch alike.

    Attributes:
        records: begins to read the split anew.
        arrange: makes rows of examples.
        content: what tells this data from other data.
    """

    records: Callable[[], Iterable[SftRecord]]
    encoder: Encoder
    max_length: int
    arrange: Callable[[Iterable[Example]], Iterable[Row]]
    content: str

    @property
    def count(self) -> int | None:
        return None

    def epoch(self, number: int, consumed: int) -> Iterator[Row]:
        """See `TrainingRows`; the rows already consumed are made again and left out.

        Raises:
            DataError: a record is broken, or none of them has anything to learn.
        """
        return islice(self.arrange(self._examples()), consumed, None)

    def fingerprint(self) -> str:
        return self.content

    def _examples(self) -> Iterator[Example]:
        named: list[str] = []
        read = kept = 0
        for record in self.records():
            read += 1
            example = self.encoder.example(record)
            if example.label_tokens:
                kept += 1
                yield example
            elif len(named) < NAMED:
                named.append(f"{record.location} ({why_nothing_is_learned(example, self.max_length)})")
                log.warning("left out: %s", named[-1])
        if kept < read:
            log.warning("%d of %d records of the stream were left out", read - kept, read)
        if not kept:
            raise DataError(nothing_to_learn("train", read, named))


def arrange(examples: Iterable[Example], config: SftConfig) -> Iterator[Row]:
    """The examples as rows: packed with zero_padding, else one a row."""
    if config.zero_padding:
        return iter(pack(examples, config.max_length, greedy=config.greedy_zero_padding))
    return iter(examples)


def arranged_split(split: Split, config: SftConfig) -> tuple[Row, ...]:
    """The rows of a split; with zero_padding it is logged how full they are."""
    rows = tuple(arrange(split.examples, config))
    if config.zero_padding:
        log.info(
            "%s: %d examples in %d rows of at most %d tokens, %.1f%% of a row is padding",
            *(split.name, len(split.examples), len(rows), config.max_length),
            100 * padding_share(rows, config.max_length),
        )
    return rows
