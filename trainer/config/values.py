"""How the values of an argument file are read.

JSON values pass as they are; numbers and booleans may also be written as text, as PaddleNLP takes them.
Nothing else is converted: `1.0` is not a whole number, `true` is not a number, `7` is not text.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

TRUE_WORDS = frozenset({"yes", "true", "t", "y", "1"})
FALSE_WORDS = frozenset({"no", "false", "f", "n", "0"})
WHOLE_TEXT = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
REAL_TEXT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?", re.ASCII)
LARGEST_WHOLE = 2**63 - 1
SHOWN_LENGTH = 60


@dataclass(frozen=True)
class Expect:
    """What a value has to be, in words that follow "expected"."""

    text: str


def show(value: object) -> str:
    """A short, printable form of a user's value for a message."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    text = printable(text)
    return text if len(text) <= SHOWN_LENGTH else f"{text[: SHOWN_LENGTH - 1]}…"


def printable(text: str) -> str:
    """The text with unpaired surrogates and control characters escaped, so that it can be sent and stored."""
    safe = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in safe)


def refusal(hint: str = "") -> PydanticCustomError:
    """The error of a value that cannot be read; `hint` is the remedy when there is a special one."""
    return PydanticCustomError("unreadable", "{hint}", {"hint": hint})


def read_flag(value: Any) -> bool:
    """true, false, 1, 0 or one of PaddleNLP's words for them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | str):
        word = str(value).strip().lower()
        if word in TRUE_WORDS:
            return True
        if word in FALSE_WORDS:
            return False
    raise refusal()


def read_whole(value: Any) -> int:
    """An integer of at most 64 bits, also as text."""
    if isinstance(value, str) and WHOLE_TEXT.fullmatch(value.strip()):
        value = int(value)
    elif isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_WHOLE:
        raise refusal(f"Write {int(value)}.")
    if isinstance(value, bool) or not isinstance(value, int):
        raise refusal()
    if abs(value) > LARGEST_WHOLE:
        raise refusal("The number is too large.")
    return value


def read_real(value: Any) -> float:
    """A finite number, also as text."""
    if isinstance(value, str) and REAL_TEXT.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refusal()
    if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
        raise refusal("The number is too large.")
    if not math.isfinite(value):
        raise refusal("NaN and Infinity are not JSON numbers.")
    return float(value)


def read_text(value: Any) -> str:
    """Text that every store can hold: no NUL and no unpaired surrogate."""
    if not isinstance(value, str):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        raise refusal(f'Put it in quotes: "{value}".' if is_number else "")
    if "\x00" in value:
        raise refusal("The text has a NUL character.")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise refusal("The text has an unpaired surrogate.") from None
    return value


def read_path(value: Any) -> str:
    """Text that names a file or a folder."""
    text = read_text(value)
    if not text.strip():
        raise refusal("The text is empty.")
    return text


def read_list(value: Any) -> list[Any]:
    """A list; a single value stands for a list of one."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str | int) and not isinstance(value, bool):
        return [value]
    raise refusal()


def read_object(value: Any) -> dict[str, Any]:
    """A JSON object whose texts every store can hold."""
    if not isinstance(value, dict):
        raise refusal()
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise refusal("It holds something that is not JSON.") from None
    read_text(text)
    if "\\u0000" in text:
        raise refusal("It holds a NUL character.")
    return value


def positive_or_unset(value: int) -> int:
    """-1 stands for "not set" where PaddleNLP has no null."""
    if value == -1 or value >= 1:
        return value
    raise refusal()


Flag = Annotated[bool, BeforeValidator(read_flag), Expect("true or false")]
Whole = Annotated[int, BeforeValidator(read_whole), Expect("a whole number")]
PositiveOrUnset = Annotated[
    int,
    BeforeValidator(read_whole),
    AfterValidator(positive_or_unset),
    Expect("-1 (not set) or a whole number >= 1"),
]
Real = Annotated[float, BeforeValidator(read_real), Expect("a number")]
Text = Annotated[str, BeforeValidator(read_text), Expect("text")]
PathText = Annotated[str, BeforeValidator(read_path), Expect("a path")]
TextList = Annotated[list[Text], BeforeValidator(read_list), Expect("a list of texts")]
WholeList = Annotated[list[Whole], BeforeValidator(read_list), Expect("a list of whole numbers")]
WholeLists = Annotated[
    list[list[Whole]], BeforeValidator(read_list), Expect("a list of lists of whole numbers")
]
JsonObject = Annotated[dict[str, Any], BeforeValidator(read_object), Expect("a JSON object")]


class Words:
    """Marks a text of space-separated words out of a known set, as PaddleNLP writes sets of switches."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.text = f"words out of {', '.join(known)}, separated by spaces"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def read(self, value: Any) -> str:
        """The text, when it has no unknown word."""
        text = read_text(value)
        unknown = [word for word in text.split() if word not in self.known]
        if unknown:
            raise refusal(f"Unknown: {printable(' '.join(unknown))[:SHOWN_LENGTH]}.")
        return text
