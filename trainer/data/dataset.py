"""Tokenizing the splits of a data set, with a count of everything that happens on the way."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.config.problems import DataError, Problem
from trainer.data.sft import Example, tokenize_record

if TYPE_CHECKING:
    from trainer.config.records import SftRecord
    from trainer.tokenizers import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Split:
    """The examples of one split and what became of its records.

    Attributes:
        name: "train" or "dev".
        examples: those that can be trained on, in file order.
        dropped: records left out because not one target token fits.
        cut: examples whose last answer was cut, so that it ends without EOS.
        shortened: examples that lost earlier turns.
    """

    name: str
    examples: tuple[Example, ...]
    dropped: int
    cut: int
    shortened: int

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


def tokenize_split(
    name: str, records: Iterable[SftRecord], tokenizer: Tokenizer, src_length: int, max_length: int
) -> Split:
    """Tokenize all records of a split.

    Raises:
        DataError: the split has no record, or none of them has a target token that fits.
    """
    examples: list[Example] = []
    read = cut = shortened = 0
    for record in records:
        read += 1
        example = tokenize_record(record, tokenizer, src_length, max_length)
        if not example.label_tokens:
            continue
        examples.append(example)
        cut += example.cut
        shortened += example.lost_turns > 0
    if not read:
        raise DataError(Problem(("dataset_name_or_path", name), f"the {name} split has no records"))
    if not examples:
        raise DataError(
            Problem(
                ("dataset_name_or_path", name),
                f"none of the {read} records of the {name} split has a target token within"
                f" max_length={max_length}, so there is nothing to learn",
                "Raise max_length, lower src_length, or look at the tgt texts.",
            )
        )
    split = Split(name, tuple(examples), read - len(examples), cut, shortened)
    log.info(
        "%s: %d examples, %d tokens, %d of them learned",
        name,
        len(examples),
        split.tokens,
        split.label_tokens,
    )
    return split


def split_warnings(split: Split, max_length: int) -> Iterator[Problem]:
    """What a user should know about a split: at most one warning for each kind of loss."""
    loc = ("dataset_name_or_path", split.name)
    total = len(split.examples)
    if split.dropped:
        yield Problem(
            loc,
            f"{split.dropped} of {split.dropped + total} records were left out: no target token fits behind"
            f" the source in max_length={max_length}",
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
