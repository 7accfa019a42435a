"""JSON as the standard has it: no NaN or Infinity, no key twice."""

import json
from typing import Any


class NotJsonError(ValueError):
    """The text is not strict JSON; the message says where and why."""


def loads(text: str | bytes) -> Any:
    """Parse strict JSON.

    Raises:
        NotJsonError: for bytes that are not UTF-8, a syntax error, NaN or Infinity, a repeated key, numbers
            that do not fit a float or nesting that is too deep.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotJsonError(f"byte {error.start} is not UTF-8 text") from None
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_once)
    except NotJsonError:
        raise
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in error.doc else ""
        raise NotJsonError(f"{error.msg} ({line}column {error.colno})") from None
    except RecursionError:
        raise NotJsonError("it is nested too deeply") from None
    except ValueError:
        raise NotJsonError("a number has too many digits") from None


def _refuse_constant(word: str) -> Any:
    raise NotJsonError(f"{word} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise NotJsonError(f"the number {text[:30]} is too large")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotJsonError(f"the key {key[:60]!r} appears twice")
            seen.add(key)
    return members
