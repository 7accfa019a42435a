"""Encoding SFT records with PaddleNLP's `chat_template.json`.

A conversation is rendered in pieces, each encoded by itself without added tokens, so BOS and EOS have to
stand in the template: the system text (never learned, never cut), then for each turn the user's part (never
learned) and the answer (learned). Turns are kept from the last one backwards while they fit in `max_length`.
When the last turn alone does not fit, its user part keeps its first `src_length` tokens, those of the system
text counted, and the answer what room is left in `max_length`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jinja2 import Template

from trainer.config.chat_templates import PaddleTemplate, jinja_environment
from trainer.config.problems import DataError, Problem
from trainer.data.chat_jinja import refused
from trainer.data.sft import Example

if TYPE_CHECKING:
    from trainer.config.records import SftRecord
    from trainer.tokenizers import Tokenizer


@dataclass(frozen=True)
class PaddleEncoder:
    """Records in PaddleNLP's form of chat template; see the module."""

    tokenizer: Tokenizer
    source: PaddleTemplate
    src_length: int
    max_length: int
    _templates: dict[str, Template] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        environment = jinja_environment(keep_trailing_newline=True)
        pieces = {name: environment.from_string(text) for name, text in self.source.pieces().items()}
        object.__setattr__(self, "_templates", pieces)

    @property
    def template(self) -> str | None:
        """The file of the chat template."""
        return self.source.origin

    @property
    def special_tokens(self) -> frozenset[str]:
        """All of the tokenizer's: a rendered text is encoded with them."""
        return self.tokenizer.special_tokens

    def fingerprint(self) -> str | None:
        """See `trainer.data.encoding.Encoder`; a template that asks for chance has none."""
        pieces = json.dumps(self.source.pieces())
        if "random" in pieces:
            return None
        return f"paddlenlp {pieces}; {self.src_length}; {self.max_length}; {self.tokenizer.fingerprint()}"

    def example(self, record: SftRecord) -> Example:
        """The example of a record; it may turn out to have no label token.

        Raises:
            DataError: the template refuses the record, or its system text fills `max_length`.
        """
        system = self._system(record, training=True)
        turns = self._turns(record, training=True)
        kept: list[tuple[list[int], list[int]]] = []
        room = self.max_length - len(system)
        for user, bot in reversed(turns):
            if len(user) + len(bot) > room:
                break
            room -= len(user) + len(bot)
            kept.insert(0, (user, bot))
        cut = False
        if not kept:
            user, bot = turns[-1]
            user = user[: max(0, min(self.src_length - len(system), room))]
            room -= len(user)
            cut = len(bot) > room
            kept = [(user, bot[:room])]
        ids, learned = list(system), [False] * len(system)
        for user, bot in kept:
            ids += [*user, *bot]
            learned += [*[False] * len(user), *[True] * len(bot)]
        return Example.of(ids, learned, cut=cut, lost_turns=len(turns) - len(kept))

    def prompt(self, record: SftRecord) -> list[int]:
        """What the last answer is generated from: at most `src_length` tokens, with whole earlier turns."""
        system = self._system(record, training=False)
        query = self._piece("query", record, query=record.src[-1], **_place(record, len(record.src) - 1))
        query = query[: max(0, self.src_length - len(system))]
        turns: list[int] = []
        for user, bot in reversed(self._turns(record, training=False)[:-1]):
            if len(system) + len(user) + len(bot) + len(turns) + len(query) > self.src_length:
                break
            turns = [*user, *bot, *turns]
        return [*system, *turns, *query]

    def last_answer(self, record: SftRecord, first: int) -> tuple[list[int], list[int]]:
        """The conversation from turn `first` on: the ids before its last answer, and those of that answer.

        Nothing but whole turns is left out.

        Raises:
            DataError: the template refuses the record, or its system text fills `max_length`.
        """
        *earlier, (query, answer) = self._turns(record, training=True)[first:]
        before = self._system(record, training=True)
        for user, bot in earlier:
            before += [*user, *bot]
        return before + query, answer

    def _system(self, record: SftRecord, training: bool) -> list[int]:
        ids = self._piece("system", record, is_training=training) if "system" in self._templates else []
        if len(ids) >= self.max_length:
            msg = f"{record.location}: the system text has {len(ids)} tokens, expected fewer than"
            msg += f" max_length={self.max_length}: it is never cut"
            raise DataError(Problem(("dataset_name_or_path",), msg, "Shorten it or raise max_length."))
        return ids

    def _turns(self, record: SftRecord, training: bool) -> list[tuple[list[int], list[int]]]:
        turns = []
        for index, (user, bot) in enumerate(zip(record.src, record.tgt, strict=True)):
            values = {"user": user, "bot": bot, "is_training": training, **_place(record, index)}
            turns.append(
                (
                    self._piece("conversation[0]", record, **values),
                    self._piece("conversation[1]", record, **values),
                )
            )
        return turns

    def _piece(self, name: str, record: SftRecord, **values: Any) -> list[int]:
        try:
            text = self._templates[name].render({**record.context, **values})
        except Exception as error:  # a template can fail in every way an expression can
            raise refused(record, self.source.origin, error) from error
        return self.tokenizer.encode(text, add_special_tokens=False, allow_special=True)


def _place(record: SftRecord, index: int) -> dict[str, Any]:
    """Where a turn stands in its conversation."""
    length = len(record.src)
    return {"index": index, "length": length, "is_first": index == 0, "is_last": index == length - 1}
