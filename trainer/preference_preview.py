"""What preference training would make of the first records: the prompt, and each response behind it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import load_tokenizer
from trainer.config.data_files import PREFERENCE_FILES
from trainer.config.schema import DpoConfig, KtoConfig
from trainer.data.files import read_preference_records
from trainer.data.preference_encoding import build_preference_encoder, preference_ending_warning

if TYPE_CHECKING:
    from trainer.data.preference import PreferenceExample
    from trainer.tokenizers import Tokenizer

PAIR = ("chosen", "rejected")
JUDGED = {True: "desirable", False: "undesirable"}


def preference_preview(config: DpoConfig | KtoConfig, examples: int, most_tokens: int) -> dict[str, Any]:
    """The first records of the training data (of the dev data, when nothing is trained).

    Args:
        config: its paths are absolute, or relative to the working directory.
        examples: how many.
        most_tokens: of an example that are shown: the first and the last ones.

    Returns:
        What `trainer.preview.preview` returns; a token has `response` besides: chosen, rejected, desirable or
        undesirable, None in the prompt.

    Raises:
        ConfigError, DataError: the template, the tokenizer or a record cannot be used.
    """
    tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path)
    encoder = build_preference_encoder(config, tokenizer)
    split = "train" if config.do_train else "dev"
    field = PREFERENCE_FILES[split]
    shown = []
    for record in islice(read_preference_records(Path(getattr(config, field)), config.task, field), examples):
        encoded = encoder.encoded(record)
        left_out = encoder.why_left_out(encoded)
        example = None if left_out else encoder.example(encoded)
        tokens = [] if example is None else list(_tokens(example, tokenizer))
        if len(tokens) > most_tokens:
            tokens = tokens[: most_tokens // 2] + tokens[-most_tokens // 2 :]
        shown.append(
            {
                "location": record.location,
                "tokens": tokens,
                "length": 0 if example is None else example.length + 1,
                "label_tokens": 0 if example is None else example.label_tokens,
                "cut": example is not None and example.cut,
                "lost_turns": encoded.lost_turns,
                "left_out": left_out,
            }
        )
    warning = preference_ending_warning(encoder, tokenizer)
    warnings = [warning.as_dict()] if warning else []
    return {"split": split, "template": encoder.form.template, "warnings": warnings, "examples": shown}


def _tokens(example: PreferenceExample, tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    """The tokens of the prompt, then those of each response."""
    prompt = [*example.prompt.tolist(), int(example.responses[0].input_ids[0])]
    parts: list[tuple[str | None, list[int]]] = [(None, prompt)]
    names = PAIR if example.desirable is None else (JUDGED[example.desirable],)
    for name, response in zip(names, example.responses, strict=True):
        parts.append((name, response.labels.tolist()))
    for name, ids in parts:
        for token in ids:
            text = tokenizer.decode([token], skip_special_tokens=False)
            yield {"id": token, "text": text, "learned": name is not None, "response": name}
