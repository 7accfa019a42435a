"""Turns pydantic's error records into problems that say what came, what was expected and what to do."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from api.problems import LONGEST_NAME, MOST_PROBLEMS
from trainer.config.problems import Problem

_EXPECTED: dict[str, str | Callable[[Mapping[str, Any]], str]] = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "an object",
    "list_type": "an array",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": lambda ctx: f"one of {ctx['expected']}",
    "enum": lambda ctx: f"one of {ctx['expected']}",
    "greater_than": lambda ctx: f"a number > {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"a number >= {ctx['ge']:g}",
    "less_than": lambda ctx: f"a number < {ctx['lt']:g}",
    "less_than_equal": lambda ctx: f"a number <= {ctx['le']:g}",
    "too_short": lambda ctx: f"at least {ctx['min_length']} entries",
    "string_too_short": lambda ctx: f"a text of at least {ctx['min_length']} character(s)",
    "string_too_long": lambda ctx: f"at most {ctx['max_length']} characters",
    "too_long": lambda ctx: f"at most {ctx['max_length']} entries",
    "string_pattern_mismatch": lambda ctx: f"text that matches {ctx['pattern']}",
}

_HINTS: dict[str, str | Callable[[Mapping[str, Any]], str]] = {
    "int_type": "Send a whole number without quotes, such as 3.",
    "int_parsing": "Send a whole number, such as 3.",
    "int_from_float": "Send a whole number, such as 3.",
    "float_type": "Send a number without quotes, such as 1.5.",
    "float_parsing": "Send a number, such as 1.5.",
    "string_type": "Put it in quotes.",
    "bool_type": "Send true or false without quotes.",
    "dict_type": "Send an object, such as {}.",
    "list_type": "Send an array, such as [].",
    "model_type": "Send an object, such as {}.",
    "model_attributes_type": "Send an object, such as {}.",
    "literal_error": "Send one of these words.",
    "enum": "Send one of these words.",
    "greater_than": "Send a larger number.",
    "greater_than_equal": lambda ctx: f"Use for example {ctx['ge']:g}.",
    "less_than": "Send a smaller number.",
    "less_than_equal": lambda ctx: f"Use for example {ctx['le']:g}.",
    "string_too_short": "Leave it out if it is not needed.",
    "string_too_long": "Shorten it.",
    "too_long": "Leave some of them out.",
    "string_pattern_mismatch": "Leave the other characters out.",
}


def shown(value: object) -> str:
    """A value as the user wrote it, cut to a readable length."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that offers the known name closest to `name`, or all of them when none is close."""
    names = sorted(known)
    close = get_close_matches(name[:LONGEST_NAME], names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"Known names: {', '.join(names)}."


def records(error: ValidationError | RequestValidationError) -> Sequence[Mapping[str, Any]]:
    """pydantic's records of what is wrong: all, or the first ones and one more than an answer tells of.

    A body can have half a million wrong members, and to explain one is not free.
    """
    if isinstance(error, ValidationError):
        return error.errors(include_url=False)[: MOST_PROBLEMS + 1]
    return error.errors()[: MOST_PROBLEMS + 1]


def explain(
    error: Mapping[str, Any], prefix: tuple[str | int, ...] = (), known: Iterable[str] = ()
) -> Problem:
    """One pydantic error record as a problem; `known` are the names to choose from for an unknown field."""
    loc = prefix + tuple(error["loc"])
    kind, ctx = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return Problem(loc, "unknown field", nearest(str(error["loc"][-1]), known))
    if kind == "missing":
        return Problem(loc, "is missing", f"Add {error['loc'][-1]!r}.")
    if kind == "value_error":
        return Problem(loc, f"got {shown(error['input'])}, {ctx['error']}")
    expected = _EXPECTED.get(kind)
    if expected is None:
        return Problem(loc, f"got {shown(error['input'])}: {error['msg']}")
    expectation = expected if isinstance(expected, str) else expected(ctx)
    hint = _HINTS.get(kind, "")
    return Problem(
        loc,
        f"got {shown(error['input'])}, expected {expectation}",
        hint if isinstance(hint, str) else hint(ctx),
    )
