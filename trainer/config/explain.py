"""Pydantic's complaints about single values, said in the words of this service."""

import difflib
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from trainer.config.problems import Problem
from trainer.config.schema import TaskConfig
from trainer.config.standing import standing_of
from trainer.config.values import Expect, Words, show

NOT_SET = -1  # PaddleNLP's word for it where a number is expected
SIGNS = {annotated_types.Ge: ">=", annotated_types.Gt: ">", annotated_types.Le: "<=", annotated_types.Lt: "<"}


def value_problems(config: type[TaskConfig], values: dict[str, Any], error: ValidationError) -> list[Problem]:
    """One problem for each argument that could not be read."""
    by_name: dict[str, dict[str, Any]] = {}
    for detail in error.errors(include_url=False, include_input=False):
        by_name.setdefault(str(detail["loc"][0]), dict(detail))
    problems = []
    for name, detail in by_name.items():
        field = config.model_fields[name]
        expected = expectation(field)
        if detail["type"] == "missing":
            problems.append(Problem((name,), f"not set, expected {expected}", f"It is: {field.description}"))
        else:
            value = values[name]
            msg = f"got {show(value)}, expected {expected}"
            problems.append(Problem((name,), msg, _remedy(field, value, detail)))
    return problems


def expectation(field: FieldInfo) -> str:
    """What a value of `field` has to be, in words that follow "expected"."""
    kind = _kind(field.annotation, field.metadata)
    bounds = [
        f"{sign} {getattr(item, type(item).__name__.lower())}"
        for item in field.metadata
        if (sign := SIGNS.get(type(item)))
    ]
    return " ".join([kind, " and ".join(bounds)]).strip()


def choices(annotation: Any) -> tuple[Any, ...]:
    """The values of a Literal type, also inside an optional one; empty for other types."""
    inner = _unwrapped(annotation)
    return get_args(inner) if get_origin(inner) is Literal else ()


def _kind(annotation: Any, metadata: list[Any]) -> str:
    inner = _unwrapped(annotation)
    if get_origin(inner) is Annotated:
        metadata = [*metadata, *get_args(inner)[1:]]
    for item in metadata:
        if isinstance(item, Expect | Words):
            return item.text
    return f"one of {', '.join(map(str, choices(annotation)))}"


def _unwrapped(annotation: Any) -> Any:
    """`X` for `X | None`."""
    if get_origin(annotation) in (Union, UnionType):
        return next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _remedy(field: FieldInfo, value: Any, detail: dict[str, Any]) -> str:
    if hint := detail.get("ctx", {}).get("hint"):
        return hint
    if field.is_required():
        return ""
    default = field.get_default(call_default_factory=True)
    if isinstance(value, str) and (meant := _meant(value, field, default)):
        return f"Did you mean {meant}?"
    if default in (None, "", NOT_SET):
        return "Leave it out if it is not needed."
    return "Write true or false." if isinstance(default, bool) else f"Use for example {show(default)}."


def _meant(value: str, field: FieldInfo, default: Any) -> str | None:
    """The accepted word nearest to `value`, whatever its case."""
    standing = standing_of(field)
    words = {
        str(word).lower(): str(word) for word in choices(field.annotation) if standing.passes(word, default)
    }
    near = difflib.get_close_matches(value.lower()[:80], words, n=1)
    return words[near[0]] if near else None
