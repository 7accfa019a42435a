"""The kinds of data that can be trained on, told from a line: sft, dpo, kto."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainer.config import preference_records
from trainer.config.records import RecordError, parse_sft_line, read_object

#: What reads a line, by kind.
PARSERS: dict[str, Callable[[str | bytes], Any]] = {"sft": parse_sft_line, **preference_records.PARSERS}
KINDS = tuple(PARSERS)
SAMPLES = {
    "sft": '{"src": "question", "tgt": "answer"}',
    "dpo": '{"src": "question", "response": ["better", "worse"], "sort": [1, 0]}',
    "kto": '{"src": "question", "response": ["answer"], "sort": [1]}',
}
"""A good line, by kind."""


def kind_of(line: str | bytes) -> str | None:
    """The kind that a line is, or is nearest to; None when it is no JSON object."""
    with suppress(RecordError):
        record = read_object(line, "src and tgt")
        if "response" in record or "sort" in record:
            return "kto" if _is_single(record.get("response")) or _is_single(record.get("sort")) else "dpo"
        if record.keys() >= {"chosen", "rejected"} and "src" not in record:
            return "dpo"
        if record.keys() >= {"completion", "label"}:
            return "kto"
        return "sft"
    return None


def _is_single(value: object) -> bool:
    return isinstance(value, list) and len(value) == 1
