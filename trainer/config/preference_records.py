"""Preference records: one JSON object a line, a conversation and what was judged as its next answer.

dpo: `{"src": text or [texts], "tgt": text or [texts], "response": [text, text], "sort": [whole number, whole
number]}`; the response with the larger number is the chosen one. kto: `"response": [text], "sort": [1 or 0]`;
1 says that the response is desirable. `src` are the user's turns, oldest first, `tgt` the answers to all of
them but the last; with one turn it may be absent. `context` is as in fine-tuning data. Other keys are left
alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainer.config.data_files import PREFERENCE_FILES
from trainer.config.problems import Problem
from trainer.config.records import (
    RecordError,
    found_keys,
    read_context,
    read_object,
    read_texts,
    read_turns,
)
from trainer.config.values import show

KEYS = "src, tgt, response and sort"
CHAT_REMEDY = (
    "put the user's texts in src, the earlier answers in tgt and the judged ones in response and sort"
)

#: What other kinds of records look like: the keys that give them away, what they are, and what to do.
OTHER_KINDS: tuple[tuple[frozenset[str], str, str], ...] = (
    (
        frozenset({"chosen", "rejected"}),
        "data with chosen and rejected",
        'put the prompt in src, both answers in response, the chosen one first, and add "sort": [1, 0]',
    ),
    (
        frozenset({"completion", "label"}),
        "data with completion and label",
        'put the prompt in src, the completion in response (a list), and add "sort": [1] or [0]',
    ),
    (
        frozenset({"src", "tgt"}),
        "fine-tuning data (it has no response)",
        "task finetune takes it",
    ),
    (frozenset({"instruction", "output"}), "Alpaca data, without judged responses", CHAT_REMEDY),
    (frozenset({"prompt", "completion"}), "prompt data, without judged responses", CHAT_REMEDY),
    (frozenset({"messages"}), "chat data (it has messages)", CHAT_REMEDY),
    (frozenset({"conversations"}), "chat data (it has conversations)", CHAT_REMEDY),
)


@dataclass(frozen=True)
class PreferenceRecord:
    """A conversation whose last turn is answered by judged responses. Its texts have no space around them.

    Attributes:
        src: the user's turns, at least one.
        tgt: the earlier answers, one fewer.
        responses: the chosen and the rejected one (dpo), or the one that was judged (kto).
        desirable: how that one was judged; None for dpo.
        context: what a chat template is given besides the texts, such as `system`.
        location: file and line it came from, for messages.
    """

    src: tuple[str, ...]
    tgt: tuple[str, ...]
    responses: tuple[str, ...]
    desirable: bool | None = None
    context: dict[str, Any] = field(default_factory=dict)
    location: str = field(default="a record", compare=False)


def parse_dpo_line(text: str | bytes) -> PreferenceRecord:
    """The pair of one line.

    Raises:
        RecordError: the line is not strict JSON in UTF-8, not an object, of another kind of data, lacks a key
            or has something else there than the module says, or the two responses are judged or written
            alike.
    """
    record, src, tgt = _conversation(text)
    if _has_length(record, "response", 1) and _has_length(record, "sort", 1):
        raise RecordError(
            "another kind of data", "this is data of task kto (one response with its sort); task kto takes it"
        )
    first, second = _responses(record, 2)
    ranks = _sort(record, 2, "two different whole numbers, the larger one for the chosen response")
    if ranks[0] == ranks[1]:
        raise RecordError(
            "equal sorts",
            f"sort: got {show(ranks)}, expected two different numbers, the larger for the chosen response",
        )
    if first == second:
        raise RecordError("equal responses", "response: both texts are the same, expected two different ones")
    responses = (first, second) if ranks[0] > ranks[1] else (second, first)
    return PreferenceRecord(src, tgt, responses, context=read_context(record))


def parse_kto_line(text: str | bytes) -> PreferenceRecord:
    """The judged response of one line.

    Raises:
        RecordError: as for `parse_dpo_line`, or `sort` is neither [1] nor [0].
    """
    record, src, tgt = _conversation(text)
    if _has_length(record, "response", 2) and _has_length(record, "sort", 2):
        raise RecordError(
            "another kind of data", "this is data of task dpo (two responses); task dpo takes it"
        )
    responses = _responses(record, 1)
    expected = "[1] for a desirable response or [0] for an undesirable one"
    (judgement,) = _sort(record, 1, expected)
    if judgement not in (0, 1):
        raise RecordError("wrong sort", f"sort: got [{show(judgement)}], expected {expected}")
    return PreferenceRecord(src, tgt, responses, judgement == 1, read_context(record))


def _conversation(text: str | bytes) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """The record, its user's turns and its earlier answers."""
    record = read_object(text, KEYS)
    _refuse_other_kinds(record)
    if record.get("system"):
        msg = 'system is no key of these records; write it as "context": {"system": ...} for a chat template'
        raise RecordError("wrong place", msg)
    src = _stripped(read_turns(record, "src"))
    no_answers = record.get("tgt") in (None, [])
    tgt = () if no_answers else _stripped(read_turns(record, "tgt"))
    if len(tgt) != len(src) - 1:
        msg = f"src has {len(src)} turns and tgt {len(tgt)}, expected tgt to have one fewer: its last turn"
        raise RecordError("wrong number of turns", f"{msg} is answered by response")
    return record, src, tgt


def _refuse_other_kinds(record: dict[str, Any]) -> None:
    if "response" in record or "sort" in record:
        return
    for keys, kind, remedy in OTHER_KINDS:
        if keys <= record.keys():
            raise RecordError("another kind of data", f"this is {kind}; {remedy}")


def _responses(record: dict[str, Any], count: int) -> tuple[str, ...]:
    expected = f"a list of {count} text{'s' if count > 1 else ''}"
    value = _listed(record, "response", count, expected)
    texts = _stripped(read_texts(value, "response"))
    for number, text in enumerate(texts):
        if not text:
            where = f"response[{number}]" if count > 1 else "response"
            raise RecordError("empty response", f"{where} is blank, expected a text")
    return texts


def _sort(record: dict[str, Any], count: int, expected: str) -> list[int]:
    value = _listed(record, "sort", count, expected)
    if any(isinstance(rank, bool) or not isinstance(rank, int) for rank in value):
        raise RecordError("wrong sort", f"sort: got {show(value)}, expected {expected}")
    return value


def _listed(record: dict[str, Any], name: str, count: int, expected: str) -> list[Any]:
    """A list of so many things."""
    if name not in record or record[name] is None:
        raise RecordError(f"no {name}", f"{name} is missing, found {found_keys(record)}")
    value = record[name]
    if not isinstance(value, list):
        raise RecordError("wrong type", f"{name}: got {show(value)}, expected {expected}")
    if len(value) != count:
        raise RecordError(f"wrong number in {name}", f"{name}: got {len(value)} entries, expected {expected}")
    return value


def _has_length(record: dict[str, Any], name: str, length: int) -> bool:
    value = record.get(name)
    return isinstance(value, list) and len(value) == length


def _stripped(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text.strip() for text in texts)


LARGEST_BALANCE = 4 / 3
"""Of weighted desirable to weighted undesirable responses; the smallest is 1 (KTO, section 4.2)."""


def out_of_balance(
    split: str, desirable: int, undesirable: int, weights: tuple[float, float]
) -> Problem | None:
    """The warning when one kind of responses outweighs the other, with the weights that balance them.

    Args:
        desirable, undesirable: how many responses there are.
        weights: desirable_weight and undesirable_weight.
    """
    good, bad = desirable * weights[0], undesirable * weights[1]
    if desirable == undesirable or not good or not bad or 1 <= good / bad <= LARGEST_BALANCE:
        return None
    msg = f"{split} has {desirable} desirable and {undesirable} undesirable responses, which weigh "
    msg += f"{good:g} to {bad:g} = {good / bad:.3g}, expected 1 to {LARGEST_BALANCE:.3g}"
    first, last = bad / desirable, LARGEST_BALANCE * bad / desirable
    hint = f"Set desirable_weight to {first:.3g} to {last:.3g}, or undesirable_weight to "
    hint += f"{good / LARGEST_BALANCE / undesirable:.3g} to {good / undesirable:.3g}."
    return Problem(("desirable_weight",), msg, hint)


def one_judgement(split: str, desirable: int, undesirable: int) -> Problem | None:
    """The warning when all responses of a split, so many of each kind, were judged alike."""
    if bool(desirable) == bool(undesirable):
        return None
    there, missing = ("desirable", "undesirable") if desirable else ("undesirable", "desirable")
    msg = f"all responses of {split} are {there}, so the policy is not told what is {missing}"
    return Problem((PREFERENCE_FILES[split],), msg, f'Add records with "sort": [{int(not desirable)}].')


#: What reads a line, by task.
PARSERS: dict[str, Callable[[str | bytes], PreferenceRecord]] = {"dpo": parse_dpo_line, "kto": parse_kto_line}
