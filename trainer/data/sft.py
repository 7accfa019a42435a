"""Encoding SFT records as raw text, without a chat template.

Every turn of a record, a pair of source and target, is encoded by the same rule:

* source: special tokens on (Gemma puts its BOS first), cut from the left to `src_length`, never learned;
* target: no special tokens, learned, with an EOS behind it.

Turns are joined in order. All of them are trained: each source is masked and each target learned, so a record
of n turns teaches what n records with growing history would. When the turns do not fit in `max_length`, the
oldest are left out; when the last turn alone does not fit, its target is cut from the right, and a cut target
gets no EOS (an EOS there would teach the model to stop in mid-sentence). For a single turn this is
PaddleNLP's rule.

The shift by one is done in `Example.of` and nowhere else: ``labels[t]`` is the token that follows
``input_ids[t]``, or -100 where nothing is learned.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        masked_turns: earlier answers that are there and not learned.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    cut: bool
    lost_turns: int
    masked_turns: int = 0

    @classmethod
    def of(
        cls, ids: Sequence[int], learned: Sequence[bool], *, cut: bool, lost_turns: int, masked_turns: int = 0
    ) -> Example:
        """The example of a whole sequence of ids and which of them are learned."""
        labels = np.where(np.asarray(learned, dtype=bool), np.asarray(ids, dtype=np.int32), IGNORE)
        inputs = np.asarray(ids[:-1], dtype=np.int32)
        return cls(inputs, labels[1:].astype(np.int32), cut, lost_turns, masked_turns)

    @property
    def parts(self) -> tuple[Example, ...]:
        """The examples in a row of this one alone."""
        return (self,)

    @property
    def length(self) -> int:
        return len(self.input_ids)

    @property
    def label_tokens(self) -> int:
        """Positions that are learned; an example with none cannot be trained on."""
        return int((self.labels != IGNORE).sum())


@dataclass(frozen=True)
class PlainEncoder:
    """Records as raw text; see the module.

    Attributes:
        src_length: most tokens of a source.
        max_length: most tokens of an example.
    """

    tokenizer: Tokenizer
    src_length: int
    max_length: int

    @property
    def template(self) -> str | None:
        """There is none."""
        return None

    @property
    def special_tokens(self) -> frozenset[str]:
        """None act: raw text is text."""
        return frozenset()

    def fingerprint(self) -> str:
        """See `trainer.data.encoding.Encoder`."""
        return f"raw text; {self.src_length}; {self.max_length}; {self.tokenizer.fingerprint()}"

    def example(self, record: SftRecord) -> Example:
        """The example of a record; it may turn out to have no label token."""
        turns = list(zip(record.src, record.tgt, strict=True))
        src, tgt, cut = self._last_turn(*turns[-1])
        kept = [(src, tgt)]
        room = self.max_length - len(src) - len(tgt)
        for source, target in reversed(turns[:-1]):
            src, tgt = self._source(source), self._whole_target(target)
            if len(src) + len(tgt) > room:
                break
            room -= len(src) + len(tgt)
            kept.append((src, tgt))
        kept.reverse()
        ids = [token for src, tgt in kept for token in (*src, *tgt)]
        learned = [part for src, tgt in kept for part in (*[False] * len(src), *[True] * len(tgt))]
        return Example.of(ids, learned, cut=cut, lost_turns=len(turns) - len(kept))

    def prompt(self, record: SftRecord) -> list[int]:
        """What the last answer is generated from: at most `src_length` tokens, with whole earlier turns."""
        ids = self._source(record.src[-1])
        for source, target in zip(reversed(record.src[:-1]), reversed(record.tgt[:-1]), strict=True):
            turn = [*self._source(source), *self._whole_target(target)]
            if len(turn) + len(ids) > self.src_length:
                break
            ids = [*turn, *ids]
        return ids

    def _last_turn(self, source: str, target: str) -> tuple[list[int], list[int], bool]:
        """Source ids, target ids and whether the target was cut, together at most `max_length` tokens."""
        src = self._source(source)
        room = max(0, self.max_length - len(src))
        tgt = self._target(target)
        if len(tgt) < room:
            return src, self._whole_target(target), False
        return src, tgt[:room], True

    def _source(self, text: str) -> list[int]:
        ids = self.tokenizer.encode(text, add_special_tokens=True)
        return ids[max(0, len(ids) - self.src_length) :]

    def _target(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _whole_target(self, text: str) -> list[int]:
        eos = self.tokenizer.eos_id
        return [*self._target(text), *([] if eos is None else [eos])]
