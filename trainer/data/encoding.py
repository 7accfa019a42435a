"""From the arguments to the encoder of records: raw text or a chat template."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainer.config.chat_templates import JinjaTemplate, chat_template
from trainer.config.problems import DataError, Problem
from trainer.config.records import SftRecord
from trainer.data.chat_jinja import JinjaEncoder
from trainer.data.chat_paddlenlp import PaddleEncoder
from trainer.data.sft import IGNORE, Example, PlainEncoder

if TYPE_CHECKING:
    from trainer.config.schema import SftConfig
    from trainer.tokenizers import Tokenizer

_SAMPLE = SftRecord(("A question.",), ("An answer.",), {}, "a sample")
_SAMPLE_LENGTH = 1 << 20


class Encoder(Protocol):
    """Turns records into ids."""

    @property
    def template(self) -> str | None:
        """The file of the chat template; None: raw text."""
        ...

    @property
    def special_tokens(self) -> frozenset[str]:
        """Tokens that act as what they name where a record's text has their letters."""
        ...

    def fingerprint(self) -> str | None:
        """A text that is the same only for encoders that make the same examples; None: what it makes depends
        on more, such as the day.
        """
        ...

    def example(self, record: SftRecord) -> Example:
        """The example of a record, at most `max_length` tokens; it may have no label token."""
        ...

    def prompt(self, record: SftRecord) -> list[int]:
        """The ids that the record's last answer is generated from, at most `src_length`."""
        ...


def build_encoder(
    config: SftConfig,
    tokenizer: Tokenizer,
    *,
    src_length: int | None = None,
    max_length: int | None = None,
) -> Encoder:
    """The encoder for the config's chat template and lengths (or for other lengths).

    A template that `chat_template` names becomes the tokenizer's own: it is saved with it.

    Raises:
        ConfigError: the chat template cannot be used.
    """
    folder = Path(config.tokenizer_name_or_path or config.model_name_or_path)
    template = chat_template(config.chat_template, folder)
    lengths = src_length or config.src_length, max_length or config.max_length
    if template is None:
        return PlainEncoder(tokenizer, *lengths)
    if config.chat_template is not None:
        tokenizer.use_chat_template(*template.as_file())
    if isinstance(template, JinjaTemplate):
        return JinjaEncoder(tokenizer, template, *lengths)
    return PaddleEncoder(tokenizer, template, *lengths)


def ending_warning(config: SftConfig, tokenizer: Tokenizer) -> Problem | None:
    """A warning when nothing tells the model to end an answer."""
    encoder = build_encoder(config, tokenizer, src_length=_SAMPLE_LENGTH, max_length=_SAMPLE_LENGTH)
    try:
        labels = encoder.example(_SAMPLE).labels
    except DataError:  # a template may want more than the sample has; real records are still to come
        return None
    return unending_answers(encoder.template, (int(label) for label in labels if label != IGNORE), tokenizer)


def unending_answers(template: str | None, answer: Iterable[int], tokenizer: Tokenizer) -> Problem | None:
    """The warning when the ids of an `answer` have no token that ends it; `template` made them."""
    if any(_is_special(tokenizer, token) for token in answer):
        return None
    if template is None:
        msg = "the tokenizer has no EOS token, so the model does not learn to end an answer"
        return Problem(("tokenizer_name_or_path",), msg, "Name one as eos_token in tokenizer_config.json.")
    msg = f"{template} puts neither EOS nor another special token behind an answer, so the model"
    msg += " does not learn to end one"
    return Problem(("chat_template",), msg, "Let the template end answers with the tokenizer's EOS.")


def _is_special(tokenizer: Tokenizer, token: int) -> bool:
    shown = tokenizer.decode([token], skip_special_tokens=False)
    return token == tokenizer.eos_id or (bool(shown) and not tokenizer.decode([token]))
