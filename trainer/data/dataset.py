"""Encoding the splits of a data set, with a count of everything that happens on the way."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.config.problems import DataError, Problem
from trainer.data.kept_examples import encoded

if TYPE_CHECKING:
    from trainer.config.records import SftRecord
    from trainer.data.encoding import Encoder
    from trainer.data.sft import Example

log = logging.getLogger(__name__)

FIELD = "dataset_name_or_path"
#: How many records left out are named one by one.
NAMED = 10


@dataclass(frozen=True)
class Split:
    """The examples of one split and what became of its records.

    Attributes:
        name: "train" or "dev".
        records: those that became `examples`, in file order.
        examples: what can be trained on.
        dropped: where the records left out lie and why, because not one target token fits.
        cut: examples whose last answer was cut, so that it ends without EOS.
        shortened: examples that lost earlier turns.
        masked: examples with earlier answers that the chat template does not let be learned.
    """

    name: str
    records: tuple[SftRecord, ...]
    examples: tuple[Example, ...]
    dropped: tuple[str, ...]
    cut: int
    shortened: int
    masked: int

    @property
    def tokens(self) -> int:
        return sum(example.length for example in self.examples)

    @property
    def label_tokens(self) -> int:
        return sum(example.label_tokens for example in self.examples)

    def fingerprint(self) -> str:
        """A short text that is the same only for the same examples in the same order."""
        digest = hashlib.blake2b(digest_size=16)
        for example in self.examples:
            digest.update(example.input_ids.tobytes())
            digest.update(example.labels.tobytes())
        return f"{len(self.examples)} examples, {digest.hexdigest()}"


def encode_split(
    name: str, records: Iterable[SftRecord], encoder: Encoder, max_length: int, keep: Path | None = None
) -> Split:
    """Encode all records of a split, or find them encoded.

    Args:
        keep: a folder for encoded examples; see `trainer.data.kept_examples`.

    Raises:
        DataError: the split has no record, or none of them has a target token that fits.
    """
    kept: list[tuple[SftRecord, Example]] = []
    dropped: list[str] = []
    records = tuple(records)
    for record, example in zip(records, encoded(records, encoder, keep), strict=True):
        if example.label_tokens:
            kept.append((record, example))
        else:
            dropped.append(f"{record.location} ({why_nothing_is_learned(example, max_length)})")
    if not kept and not dropped:
        raise DataError(Problem((FIELD, name), f"the {name} split has no records"))
    if not kept:
        raise DataError(nothing_to_learn(name, len(dropped), dropped))
    examples = tuple(example for _, example in kept)
    split = Split(
        name=name,
        records=tuple(record for record, _ in kept),
        examples=examples,
        dropped=tuple(dropped),
        cut=sum(example.cut for example in examples),
        shortened=sum(example.lost_turns > 0 for example in examples),
        masked=sum(example.masked_turns > 0 for example in examples),
    )
    log.info("%s: %d examples, %d tokens, %d of them learned", name, *_counts(split))
    return split


def why_nothing_is_learned(example: Example, max_length: int) -> str:
    """Why an example has no label token."""
    if example.length + 1 >= max_length:
        return f"its source alone fills max_length={max_length}"
    return "its target has no token"


def nothing_to_learn(name: str, count: int, dropped: list[str]) -> Problem:
    """The problem of a split all of whose `count` records were left out; `dropped` says where and why."""
    return Problem(
        (FIELD, name),
        f"none of the {count} records of the {name} split has a target token that fits, so there is"
        f" nothing to learn: {named_records(dropped, count)}",
        "Raise max_length, lower src_length, or look at the tgt texts.",
    )


def split_warnings(split: Split, max_length: int) -> Iterator[Problem]:
    """What a user should know about a split: at most one warning for each kind of loss."""
    loc = (FIELD, split.name)
    total = len(split.examples)
    if split.dropped:
        yield Problem(
            loc,
            f"{len(split.dropped)} of {len(split.dropped) + total} records were left out because nothing of"
            f" them can be learned: {named_records(split.dropped, len(split.dropped))}",
            "Raise max_length or lower src_length.",
        )
    if split.cut:
        yield Problem(
            loc,
            f"{split.cut} of {total} answers are longer than max_length={max_length} leaves room for; they"
            " were cut and end without EOS",
            "Raise max_length to keep them whole.",
        )
    if split.shortened:
        yield Problem(
            loc,
            f"{split.shortened} of {total} conversations lost their earliest turns to fit in"
            f" max_length={max_length}",
            "Raise max_length to keep them whole.",
        )
    if split.masked:
        yield Problem(
            loc,
            f"in {split.masked} of {total} conversations earlier answers are not learned: the chat template"
            " writes them differently once later turns follow",
            "Give each answer a record of its own, or use another chat_template.",
        )


def named_records(dropped: Sequence[str], count: int) -> str:
    """The first ones of `count` records left out, and how many more there are."""
    shown = dropped[:NAMED]
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")


def _counts(split: Split) -> tuple[int, int, int]:
    return len(split.examples), split.tokens, split.label_tokens
