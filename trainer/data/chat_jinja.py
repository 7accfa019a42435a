"""Encoding SFT records with a Hugging Face chat template.

A record becomes messages with the roles `user` and `assistant`; `system` of its context, if there is one,
goes in front. The rendered text is encoded as a whole and holds all its special tokens.

What is learned is each answer with whatever the template puts behind it to end the turn, found by rendering
the conversation up to each turn, never by looking for the answer's text: a turn's text begins where the
prompt for it ends. A template that marks its answers with `{% generation %}` decides itself. Where a template
writes earlier answers differently once later turns follow (some leave reasoning out), these are not learned
and are counted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jinja2 import Template, TemplateError, nodes

from trainer.config.chat_templates import GenerationTag, JinjaTemplate, jinja_environment
from trainer.config.problems import DataError, Problem
from trainer.data.sft import Example

if TYPE_CHECKING:
    from trainer.config.records import SftRecord
    from trainer.tokenizers import Tokenizer

# Words of templates that render the same record now so, now otherwise.
_UNSTEADY = ("strftime_now", "random")

Span = tuple[int, int]
Messages = list[dict[str, str]]


@dataclass(frozen=True)
class _Rendered:
    """A conversation as text, the places that are learned, and how many answers are not."""

    text: str
    learned: list[Span]
    masked_turns: int


@dataclass(frozen=True)
class JinjaEncoder:
    """Records in a Hugging Face chat template; see the module.

    When a conversation does not fit in `max_length`, its oldest turns are left out; when the last turn alone
    does not fit, the text before its answer keeps its last `src_length` tokens and the answer is cut from the
    right.
    """

    tokenizer: Tokenizer
    source: JinjaTemplate
    src_length: int
    max_length: int
    _template: Template = field(init=False, repr=False)
    _marks: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        environment = jinja_environment()
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        object.__setattr__(self, "_template", environment.from_string(self.source.text))
        written = environment.parse(self.source.text).find_all(nodes.TemplateData)
        object.__setattr__(self, "_marks", any(node.data == GenerationTag.BEGIN for node in written))

    @property
    def template(self) -> str | None:
        """The file of the chat template."""
        return self.source.origin

    @property
    def special_tokens(self) -> frozenset[str]:
        """All of the tokenizer's: a rendered text is encoded with them."""
        return self.tokenizer.special_tokens

    def fingerprint(self) -> str | None:
        """See `trainer.data.encoding.Encoder`; a template that asks for the time or for chance has none."""
        if any(word in self.source.text for word in _UNSTEADY):
            return None
        template = json.dumps(self.source.text)
        return f"jinja {template}; {self.src_length}; {self.max_length}; {self.tokenizer.fingerprint()}"

    def example(self, record: SftRecord) -> Example:
        """The example of a record; it may turn out to have no label token.

        Raises:
            DataError: the template refuses the conversation.
        """
        turns = len(record.src)
        for first in range(turns):
            rendered = self._rendered(record, first)
            ids, learned = self._encoded(rendered)
            if len(ids) <= self.max_length:
                return Example.of(
                    ids, learned, cut=False, lost_turns=first, masked_turns=rendered.masked_turns
                )
        return self._cut(ids, learned, turns - 1)

    def prompt(self, record: SftRecord) -> list[int]:
        """What the last answer is generated from: at most `src_length` tokens, with whole earlier turns."""
        ids: list[int] = []
        for first in range(len(record.src)):
            text = self._unmarked(self._render(record, self._messages(record, first)[:-1], prompt=True))
            ids = self.tokenizer.encode(text, add_special_tokens=False, allow_special=True)
            if len(ids) <= self.src_length:
                break
        return ids[-self.src_length :]

    def last_answer(self, record: SftRecord, first: int) -> tuple[str, str]:
        """The conversation from turn `first` on as text: what comes before its last answer, and that answer
        with whatever ends its turn. Nothing is cut.

        Raises:
            DataError: the template refuses the conversation.
        """
        messages = self._messages(record, first)
        before = self._unmarked(self._render(record, messages[:-1], prompt=True))
        text = self._render(record, messages)
        if self._marks and GenerationTag.END in text:
            text = text.rpartition(GenerationTag.END)[0]
        text = self._unmarked(text)
        place = _shared_length(before, text)
        return text[:place], text[place:]

    def _cut(self, ids: list[int], learned: list[bool], lost_turns: int) -> Example:
        answer = learned.index(True) if True in learned else len(ids)
        start = max(0, answer - self.src_length)
        end = start + self.max_length
        return Example.of(ids[start:end], learned[start:end], cut=end < len(ids), lost_turns=lost_turns)

    def _encoded(self, rendered: _Rendered) -> tuple[list[int], list[bool]]:
        """Ids, and which of them hold a character of a learned place."""
        encoding = self.tokenizer.encode_with_offsets(
            rendered.text, add_special_tokens=False, allow_special=True
        )
        learned = [
            any(begin < place_end and end > place for place, place_end in rendered.learned)
            for begin, end in encoding.offsets
        ]
        return encoding.ids, learned

    def _rendered(self, record: SftRecord, first: int) -> _Rendered:
        messages = self._messages(record, first)
        text = self._render(record, messages)
        if self._marks:
            return _marked(text)
        learned: list[Span] = []
        masked = 0
        for end in range(len(messages), 0, -1):
            if messages[end - 1]["role"] != "assistant":
                continue
            last = end == len(messages)
            so_far = text if last else self._render(record, messages[:end])
            before = self._render(record, messages[: end - 1], prompt=True)
            if text.startswith(so_far):
                learned.append((_shared_length(before, so_far), len(so_far)))
            else:
                masked += 1
        return _Rendered(text, learned, masked)

    def _messages(self, record: SftRecord, first: int) -> Messages:
        """The messages from turn `first` on."""
        system = record.context.get("system")
        messages = [{"role": "system", "content": str(system)}] if system else []
        for source, target in zip(record.src[first:], record.tgt[first:], strict=True):
            messages.append({"role": "user", "content": source})
            messages.append({"role": "assistant", "content": target})
        return messages

    def _unmarked(self, text: str) -> str:
        """A text without the template's marks."""
        return text.replace(GenerationTag.BEGIN, "").replace(GenerationTag.END, "") if self._marks else text

    def _render(self, record: SftRecord, messages: Messages, prompt: bool = False) -> str:
        if self._marks and _holds_mark(record):
            error = ValueError("it has U+FDD0 or U+FDD1, which mark what is learned in this template")
            raise refused(record, self.source.origin, error)
        try:
            return self._template.render(
                {**record.context, **_tokens(self.tokenizer)},
                messages=messages,
                add_generation_prompt=prompt,
            )
        except Exception as error:  # a template can fail in every way an expression can
            raise refused(record, self.source.origin, error) from error


def refused(record: SftRecord, origin: str, error: Exception) -> DataError:
    """The error of a record that a template cannot render."""
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    msg = f"{record.location}: the chat template {origin} refuses it: {reason}"
    return DataError(Problem(("dataset_name_or_path",), msg, "Correct the record, or set chat_template."))


def _marked(text: str) -> _Rendered:
    """A text whose template marks what is learned."""
    plain, learned = "", []
    for piece in text.split(GenerationTag.BEGIN):
        inside, end, outside = piece.partition(GenerationTag.END)
        if end:
            learned.append((len(plain), len(plain) + len(inside)))
        plain += inside + outside
    return _Rendered(plain, learned, 0)


def _holds_mark(record: SftRecord) -> bool:
    """Whether a text of the record would be taken for the template's own marks."""
    context = json.dumps(record.context, ensure_ascii=False, default=str)
    texts = (*record.src, *record.tgt, context)
    return any(mark in text for text in texts for mark in (GenerationTag.BEGIN, GenerationTag.END))


def _shared_length(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """The special tokens under the names that templates use; those that are not there are empty."""
    ids = {
        "bos_token": tokenizer.bos_id,
        "eos_token": tokenizer.eos_id,
        "pad_token": tokenizer.pad_id,
        "unk_token": tokenizer.unk_id,
    }
    return {
        name: "" if token is None else tokenizer.decode([token], skip_special_tokens=False)
        for name, token in ids.items()
    }


def _raise_exception(message: Any) -> None:
    raise TemplateError(str(message))
