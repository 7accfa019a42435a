"""SFT records: one JSON object a line, `{"src": text or [texts], "tgt": text or [texts], "context"?: {...}}`.

Lists are the turns of a conversation, oldest first. Keys besides these three are left alone.
"""

from dataclasses import dataclass, field
from typing import Any

from trainer.config import strict_json
from trainer.config.values import show

CHAT_REMEDY = "put the user's texts in src and the answers in tgt, as lists"

#: What other kinds of records look like: the keys that give them away, what they are, and what to do.
OTHER_KINDS: tuple[tuple[frozenset[str], str, str], ...] = (
    (
        frozenset({"response", "sort"}),
        "preference data (it has response and sort)",
        "task dpo or kto takes it",
    ),
    (
        frozenset({"chosen", "rejected"}),
        "preference data (it has chosen and rejected)",
        "task dpo trains on it",
    ),
    (frozenset({"instruction", "output"}), "Alpaca data", "rename instruction to src and output to tgt"),
    (frozenset({"prompt", "completion"}), "prompt data", "rename prompt to src and completion to tgt"),
    (frozenset({"prompt", "response"}), "prompt data", "rename prompt to src and response to tgt"),
    (frozenset({"messages"}), "chat data (it has messages)", CHAT_REMEDY),
    (frozenset({"conversations"}), "chat data (it has conversations)", CHAT_REMEDY),
)


@dataclass(frozen=True)
class SftRecord:
    """A conversation to learn: `src[i]` is answered by `tgt[i]`; both have the same length, at least 1.

    Attributes:
        context: what a chat template is given besides the texts, such as `system`.
        location: file and line it came from, for messages.
    """

    src: tuple[str, ...]
    tgt: tuple[str, ...]
    context: dict[str, Any]
    location: str = field(default="a record", compare=False)


class RecordError(ValueError):
    """A line that is not a record. `kind` groups errors of the same sort; `message` tells about this line."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def parse_sft_line(text: str | bytes) -> SftRecord:
    """The record of one line.

    Raises:
        RecordError: the line is not strict JSON in UTF-8, not an object, of another kind of data, lacks `src`
            or `tgt`, has something else than texts there, unequal numbers of turns, or nothing to learn.
    """
    record = read_object(text, "src and tgt")
    _refuse_other_kinds(record)
    src, tgt = read_turns(record, "src"), read_turns(record, "tgt")
    if len(src) != len(tgt):
        raise RecordError(
            "unequal turns", f"src has {len(src)} turns and tgt {len(tgt)}, expected the same number"
        )
    if blank := [turn for turn, answer in enumerate(tgt) if not answer.strip()]:
        where = f"tgt[{blank[0]}]" if len(tgt) > 1 else "tgt"
        raise RecordError("empty target", f"{where} is blank, expected a text to learn")
    return SftRecord(src, tgt, read_context(record))


def read_object(text: str | bytes, keys: str) -> dict[str, Any]:
    """The object that a line is; `keys` says in words what it has."""
    try:
        record = strict_json.loads(text.rstrip())
    except strict_json.NotJsonError as error:
        raise RecordError("broken JSON", f"broken JSON: {error}") from None
    if not isinstance(record, dict):
        raise RecordError("not an object", f"got {show(record)}, expected an object with {keys}")
    return record


def read_turns(record: dict[str, Any], name: str) -> tuple[str, ...]:
    """The texts of a key that holds one text or a list of them, at least one."""
    if name not in record or record[name] is None:
        raise RecordError(f"no {name}", f"{name} is missing, found {found_keys(record)}")
    value = record[name]
    if isinstance(value, str):
        return (_text(value, name),)
    if not isinstance(value, list):
        raise RecordError("wrong type", f"{name}: expected a text or a list of texts, got {show(value)}")
    if not value:
        raise RecordError("no turns", f"{name}: got an empty list, expected at least one text")
    return read_texts(value, name)


def read_texts(values: list[Any], name: str) -> tuple[str, ...]:
    """The texts of a list."""
    for turn, text in enumerate(values):
        if not isinstance(text, str):
            raise RecordError("wrong type", f"{name}[{turn}]: expected a text, got {show(text)}")
    return tuple(_text(text, name) for text in values)


def read_context(record: dict[str, Any]) -> dict[str, Any]:
    """What a chat template is given besides the texts."""
    context = record.get("context")
    if context is not None and not isinstance(context, dict):
        raise RecordError("wrong type", f"context: got {show(context)}, expected an object")
    return context or {}


def found_keys(record: dict[str, Any]) -> str:
    """The keys that are there, for messages about one that is not."""
    return ", ".join(map(show, sorted(record)[:6])) or "no key at all"


def _refuse_other_kinds(record: dict[str, Any]) -> None:
    looks_right = "src" in record and "tgt" in record
    for keys, kind, remedy in OTHER_KINDS:
        if keys <= record.keys() and ("sort" in keys or not looks_right):
            raise RecordError("another kind of data", f"this is {kind}; {remedy}")


def _text(value: str, name: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RecordError("broken text", f"{name} has an unpaired surrogate") from None
    return value
