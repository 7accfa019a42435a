"""Prompts for `regatta generate` in and completions out, as JSON lines."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.errors import INVALID, CliError

if TYPE_CHECKING:
    from trainer.tools.generate import Completion

FIELD = "prompt"
MOST_SHOWN = 10


def read_prompts(path: Path) -> list[dict[str, Any]]:
    """The records of a file: one JSON object a line, with a text named "prompt"; blank lines are skipped.

    Raises:
        CliError: the file cannot be read, or lines are wrong; the first of them are shown with their numbers.
    """
    records: list[dict[str, Any]] = []
    problems: list[dict[str, Any]] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise CliError(f"{path}: {error.strerror}.", INVALID) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_record(line))
        except ValueError as error:
            problems.append({"loc": [path.name, number], "msg": str(error), "hint": ""})
    if problems:
        more = f", {MOST_SHOWN} of them shown" if len(problems) > MOST_SHOWN else ""
        lines = "wrong line" if len(problems) == 1 else "wrong lines"
        raise CliError(f"{path} has {len(problems)} {lines}{more}:", INVALID, problems[:MOST_SHOWN])
    if not records:
        raise CliError(f"{path} has no prompts. Write one JSON object a line: {_example()}", INVALID)
    return records


def completed(
    records: Sequence[Mapping[str, Any]], completions: Iterable["Completion"]
) -> list[dict[str, Any]]:
    """The records with what was generated: completion, finish_reason ("stop" or "length"), new_tokens."""
    return [
        {
            **record,
            "completion": completion.text,
            "finish_reason": "stop" if completion.ended else "length",
            "new_tokens": len(completion.ids),
        }
        for record, completion in zip(records, completions, strict=True)
    ]


def json_lines(records: Iterable[Mapping[str, Any]]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _record(line: bytes) -> dict[str, Any]:
    from trainer.config.strict_json import NotJsonError, loads

    try:
        record = loads(line)
    except NotJsonError as error:
        raise ValueError(f"is not JSON: {error}") from None
    prompt = record.get(FIELD) if isinstance(record, dict) else None
    if not isinstance(prompt, str):
        raise ValueError(f"expected an object with a text named {FIELD}, such as {_example()}")
    return record


def _example() -> str:
    return json.dumps({FIELD: "Once upon a time"})
