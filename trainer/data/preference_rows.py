"""What preference training reads: packed rows, from memory or streamed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from trainer.data.dataset import NAMED
from trainer.data.packing import Pack, pack, padding_share
from trainer.data.preference_dataset import (
    PreferenceSplit,
    encoded_record,
    examples_of,
    refuse_nothing_to_learn,
)

if TYPE_CHECKING:
    from trainer.config.preference_records import PreferenceRecord
    from trainer.config.schema import PreferenceConfig
    from trainer.data.preference import PreferenceExample
    from trainer.data.preference_encoding import EncodedRecord, PreferenceEncoder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamedPreferences:
    """Rows that are made while they are read, in the order of the file, in every epoch alike.

    Attributes:
        records: begins to read the training data anew.
        greedy: how rows are packed.
        content: what tells this data from other data.
    """

    records: Callable[[], Iterable[PreferenceRecord]]
    encoder: PreferenceEncoder
    greedy: bool
    content: str

    @property
    def count(self) -> int | None:
        """Unknown before the end of an epoch."""
        return None

    def epoch(self, number: int, consumed: int) -> Iterator[Pack[PreferenceExample]]:
        """See `trainer.data.rows.TrainingRows`; rows already consumed are made again and left out.

        Raises:
            DataError: a record is broken, or there is too little to learn.
        """
        examples = examples_of("train", self._encoded(), self.encoder)
        rows = pack(examples, self.encoder.max_seq_len, greedy=self.greedy)
        return islice(rows, consumed, None)

    def fingerprint(self) -> str:
        return self.content

    def _encoded(self) -> Iterator[EncodedRecord]:
        named: list[str] = []
        kept = left_out = 0
        for record in self.records():
            encoded = encoded_record("train", record, self.encoder)
            if why := self.encoder.why_left_out(encoded):
                left_out += 1
                if len(named) < NAMED:
                    named.append(f"{record.location} ({why})")
                    log.warning("left out: %s", named[-1])
                continue
            kept += 1
            yield encoded
        if left_out:
            log.warning("%d of %d records of the stream were left out", left_out, kept + left_out)
        refuse_nothing_to_learn("train", kept, left_out, named)


def packed_split(split: PreferenceSplit, config: PreferenceConfig) -> tuple[Pack[PreferenceExample], ...]:
    """The rows of a split, each of at most max_seq_len tokens; it is logged how full they are."""
    rows = tuple(pack(split.examples, config.max_seq_len, greedy=config.greedy_zero_padding))
    log.info(
        "%s: %d examples in %d rows of at most %d tokens, %.1f%% of a row is padding",
        *(split.name, len(split.examples), len(rows), config.max_seq_len),
        100 * padding_share(rows, config.max_seq_len),
    )
    return rows
