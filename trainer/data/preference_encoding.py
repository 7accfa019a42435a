"""From preference records to ids: raw text, or a chat template that `chat_template` names.

Raw text is encoded as PaddleNLP does: every turn of the user with special tokens (Gemma puts a BOS before
each), every earlier answer with an EOS behind it, all joined; a response has no special token but its EOS at
the end. With a chat template the prompt is the conversation up to where the response begins, and the
response has whatever the template puts behind it to end the turn. The prompt and each response are encoded by
themselves, so the prompt is the same for all of them, and the same as in generation.

What is longer than `max_seq_len` together is shortened: the oldest turns are left out whole; if the last one
alone does not fit, the prompt keeps its last `max_prompt_len` tokens; if that is not enough, the responses
are cut from the right in proportion to their lengths, and end without EOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from trainer.config.chat_templates import NONE, JinjaTemplate, chat_template
from trainer.config.preference_records import PreferenceRecord
from trainer.config.problems import DataError, Problem
from trainer.config.records import SftRecord
from trainer.data.chat_jinja import JinjaEncoder, refused
from trainer.data.chat_paddlenlp import PaddleEncoder
from trainer.data.encoding import unending_answers
from trainer.data.preference import PreferenceExample, Response

if TYPE_CHECKING:
    from trainer.config.schema import PreferenceConfig
    from trainer.tokenizers import Tokenizer

_SAMPLE = PreferenceRecord(("A question.",), (), ("An answer.",), location="a sample")
_WITHOUT_LIMIT = 1 << 62

#: The ids of a prompt, and of each response behind it, whole.
Ids = tuple[list[int], list[list[int]]]


class Format(Protocol):
    """How conversations are written as ids."""

    @property
    def template(self) -> str | None:
        """The file of the chat template; None: raw text."""
        ...

    @property
    def special_tokens(self) -> frozenset[str]:
        """Tokens that act as what they name where a record's text has their letters."""
        ...

    def ids(self, record: PreferenceRecord, first: int) -> Ids:
        """The record from turn `first` on.

        Raises:
            DataError: the template refuses it.
        """
        ...


@dataclass(frozen=True)
class EncodedRecord:
    """A record as ids, before its responses are cut.

    Attributes:
        prompt: int32 [prompt tokens], shortened as far as it has to be.
        responses: int32 [response tokens] each, whole, with what ends them.
        desirable, location: those of the record.
        lost_turns: earlier turns left out.
        prompt_cut: tokens that the last turn lost at its front.
    """

    prompt: np.ndarray
    responses: tuple[np.ndarray, ...]
    desirable: bool | None
    location: str
    lost_turns: int
    prompt_cut: int


@dataclass(frozen=True)
class PreferenceEncoder:
    """Makes examples of records; see the module.

    Attributes:
        form: how conversations are written.
        max_seq_len: most positions of a prompt with all its responses.
        max_prompt_len: most tokens of a prompt that had to be cut.
    """

    form: Format
    max_seq_len: int
    max_prompt_len: int

    def encoded(self, record: PreferenceRecord) -> EncodedRecord:
        """The ids of a record with its prompt shortened.

        Raises:
            DataError: the chat template refuses the record.
        """
        first, ids = 0, self.form.ids(record, 0)
        while self._too_long(*ids) and first < len(record.src) - 1:
            first += 1
            ids = self.form.ids(record, first)
        prompt, responses = ids
        prompt_cut = max(0, len(prompt) - self.max_prompt_len) if self._too_long(*ids) else 0
        return EncodedRecord(
            prompt=np.asarray(prompt[prompt_cut:], dtype=np.int32),
            responses=tuple(np.asarray(response, dtype=np.int32) for response in responses),
            desirable=record.desirable,
            location=record.location,
            lost_turns=first,
            prompt_cut=prompt_cut,
        )

    def example(self, encoded: EncodedRecord) -> PreferenceExample:
        """The example of a record that `why_left_out` has nothing against."""
        return self._behind(encoded, encoded.responses, encoded.desirable)

    def mismatched(self, encoded: EncodedRecord, other: EncodedRecord) -> PreferenceExample:
        """The prompt of a record with the response of another one."""
        return self._behind(encoded, other.responses, None)

    def why_left_out(self, encoded: EncodedRecord) -> str | None:
        """Why nothing can be learned from a record; None when something can."""
        if not len(encoded.prompt):
            return "its prompt has no token"
        if not all(len(response) for response in encoded.responses):
            return "a response has no token"
        if self._room(encoded) < len(encoded.responses):
            return f"its prompt leaves no room in max_seq_len={self.max_seq_len}"
        labels = [response.labels.tolist() for response in self.example(encoded).responses]
        if len(labels) > 1 and labels[0] == labels[1]:
            return f"its responses are the same as far as they fit in max_seq_len={self.max_seq_len}"
        return None

    def _behind(
        self, encoded: EncodedRecord, responses: Sequence[np.ndarray], desirable: bool | None
    ) -> PreferenceExample:
        last = int(encoded.prompt[-1])
        rooms = shared_room([len(response) for response in responses], self._room(encoded))
        return PreferenceExample(
            prompt=encoded.prompt[:-1],
            responses=tuple(
                Response.of(last, response, room) for response, room in zip(responses, rooms, strict=True)
            ),
            desirable=desirable,
            lost_turns=encoded.lost_turns,
            prompt_cut=encoded.prompt_cut,
        )

    def _room(self, encoded: EncodedRecord) -> int:
        """Positions that the prompt leaves to the responses."""
        return self.max_seq_len - (len(encoded.prompt) - 1)

    def _too_long(self, prompt: list[int], responses: list[list[int]]) -> bool:
        return len(prompt) - 1 + sum(map(len, responses)) > self.max_seq_len


def shared_room(lengths: Sequence[int], room: int) -> list[int]:
    """How much of `room` each of the lengths gets: all it needs, or else a share of its size, at least 1."""
    total = sum(lengths)
    if total <= room:
        return list(lengths)
    return [max(1, length * room // total) for length in lengths]


@dataclass(frozen=True)
class RawText:
    """Conversations without a chat template; a context is not used."""

    tokenizer: Tokenizer

    @property
    def template(self) -> str | None:
        """There is none."""
        return None

    @property
    def special_tokens(self) -> frozenset[str]:
        """None of them acts."""
        return frozenset()

    def ids(self, record: PreferenceRecord, first: int) -> Ids:
        """See `Format`."""
        prompt: list[int] = []
        for user, answer in zip(record.src[first:-1], record.tgt[first:], strict=True):
            prompt += [*self.tokenizer.encode(user), *self._answer(answer)]
        prompt += self.tokenizer.encode(record.src[-1])
        return prompt, [self._answer(response) for response in record.responses]

    def _answer(self, text: str) -> list[int]:
        eos = self.tokenizer.eos_id
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return ids if eos is None else [*ids, eos]


@dataclass(frozen=True)
class JinjaText:
    """Conversations in a Hugging Face chat template."""

    encoder: JinjaEncoder

    @property
    def template(self) -> str | None:
        """The file of the chat template."""
        return self.encoder.template

    @property
    def special_tokens(self) -> frozenset[str]:
        """All of the tokenizer's."""
        return self.encoder.special_tokens

    def ids(self, record: PreferenceRecord, first: int) -> Ids:
        """See `Format`."""
        parts = [self.encoder.last_answer(answered, first) for answered in _answered(record)]
        prompt = min((before for before, _ in parts), key=len)  # all of them begin the same text
        answers = [(before + answer)[len(prompt) :] for before, answer in parts]
        return self._encode(prompt), [self._encode(answer) for answer in answers]

    def _encode(self, text: str) -> list[int]:
        return self.encoder.tokenizer.encode(text, add_special_tokens=False, allow_special=True)


@dataclass(frozen=True)
class PaddleText:
    """Conversations in PaddleNLP's form of chat template."""

    encoder: PaddleEncoder

    @property
    def template(self) -> str | None:
        """The file of the chat template."""
        return self.encoder.template

    @property
    def special_tokens(self) -> frozenset[str]:
        """All of the tokenizer's."""
        return self.encoder.special_tokens

    def ids(self, record: PreferenceRecord, first: int) -> Ids:
        """See `Format`."""
        parts = [(self.encoder.last_answer(answered, first), answered) for answered in _answered(record)]
        (prompt, _), _ = parts[0]
        for (before, _), answered in parts:
            if before != prompt:
                error = ValueError("it writes the prompt differently for each response")
                raise refused(answered, self.encoder.source.origin, error)
        return prompt, [answer for (_, answer), _ in parts]


def _answered(record: PreferenceRecord) -> list[SftRecord]:
    """The conversation once with each of its responses as its last answer."""
    return [
        SftRecord(record.src, (*record.tgt, response), record.context, record.location)
        for response in record.responses
    ]


def build_preference_encoder(config: PreferenceConfig, tokenizer: Tokenizer) -> PreferenceEncoder:
    """The encoder for the config's chat template (unset: raw text) and lengths.

    A template that is named becomes the tokenizer's own: it is saved with it.

    Raises:
        ConfigError: the chat template cannot be used.
    """
    return PreferenceEncoder(_format(config, tokenizer), config.max_seq_len, config.max_prompt_len)


def _format(config: PreferenceConfig, tokenizer: Tokenizer) -> Format:
    given = NONE if config.chat_template is None else config.chat_template
    template = chat_template(given, Path(config.tokenizer_name_or_path or config.model_name_or_path))
    if template is None:
        return RawText(tokenizer)
    tokenizer.use_chat_template(*template.as_file())
    if isinstance(template, JinjaTemplate):
        return JinjaText(JinjaEncoder(tokenizer, template, _WITHOUT_LIMIT, _WITHOUT_LIMIT))
    return PaddleText(PaddleEncoder(tokenizer, template, _WITHOUT_LIMIT, _WITHOUT_LIMIT))


def preference_ending_warning(encoder: PreferenceEncoder, tokenizer: Tokenizer) -> Problem | None:
    """A warning when nothing tells the model to end a response."""
    try:
        _, (response,) = encoder.form.ids(_SAMPLE, 0)
    except DataError:  # a template may want more than the sample has; real records are still to come
        return None
    return unending_answers(encoder.form.template, response, tokenizer)
