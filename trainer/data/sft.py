"""Tokenizing SFT records.

Every turn of a record, a pair of source and target, is tokenized by the same rule:

* source: special tokens on (Gemma puts its BOS first), cut from the left to `src_length`, never learned;
* target: no special tokens, learned, with an EOS behind it.

Turns are joined in order. All of them are trained: each source is masked and each target learned, so a record
of n turns teaches what n records with growing history would. When the turns do not fit in `max_length`, the
oldest are left out; when the last turn alone does not fit, its target is cut from the right, and a cut target
gets no EOS (an EOS there would teach the model to stop in mid-sentence). For a single turn this is
PaddleNLP's rule.

The shift by one is done here and nowhere else: ``labels[t]`` is the token that follows ``input_ids[t]``, or
-100 where nothing is learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from trainer.config.records import SftRecord
    from trainer.tokenizers import Tokenizer

IGNORE = -100


@dataclass(frozen=True)
class Example:
    """One training example.

    Attributes:
        input_ids: int32 [length].
        labels: int32 [length], already shifted; -100 where nothing is learned.
        cut: the last target was cut, so it ends without EOS.
        lost_turns: earlier turns left out because they did not fit.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    cut: bool
    lost_turns: int

    @property
    def length(self) -> int:
        return len(self.input_ids)

    @property
    def label_tokens(self) -> int:
        """Positions that are learned; an example with none cannot be trained on."""
        return int((self.labels != IGNORE).sum())


def tokenize_record(record: SftRecord, tokenizer: Tokenizer, src_length: int, max_length: int) -> Example:
    """The example of one record; it may turn out to have no label token (see `Example.label_tokens`)."""
    turns = list(zip(record.src, record.tgt, strict=True))
    kept: list[tuple[list[int], list[int]]] = []
    src, tgt, cut = _last_turn(*turns[-1], tokenizer, src_length, max_length)
    kept.append((src, tgt))
    room = max_length - len(src) - len(tgt)
    for source, target in reversed(turns[:-1]):
        src, tgt = _source(source, tokenizer, src_length), _target(target, tokenizer) + _eos(tokenizer)
        if len(src) + len(tgt) > room:
            break
        room -= len(src) + len(tgt)
        kept.append((src, tgt))
    kept.reverse()
    ids = [token for src, tgt in kept for token in (*src, *tgt)]
    labels = [token for src, tgt in kept for token in (*[IGNORE] * len(src), *tgt)]
    return Example(
        input_ids=np.array(ids[:-1], dtype=np.int32),
        labels=np.array(labels[1:], dtype=np.int32),
        cut=cut,
        lost_turns=len(turns) - len(kept),
    )


def _last_turn(
    source: str, target: str, tokenizer: Tokenizer, src_length: int, max_length: int
) -> tuple[list[int], list[int], bool]:
    """Source ids, target ids and whether the target was cut, together at most `max_length` tokens."""
    src = _source(source, tokenizer, src_length)
    room = max(0, max_length - len(src))
    tgt = _target(target, tokenizer)
    if len(tgt) < room:
        return src, tgt + _eos(tokenizer), False
    return src, tgt[:room], True


def _source(text: str, tokenizer: Tokenizer, src_length: int) -> list[int]:
    ids = tokenizer.encode(text, add_special_tokens=True)
    return ids[max(0, len(ids) - src_length) :]


def _target(text: str, tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def _eos(tokenizer: Tokenizer) -> list[int]:
    return [] if tokenizer.eos_id is None else [tokenizer.eos_id]
