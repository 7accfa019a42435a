"""Label filters of lists: `?label=key:value`, any number of times; all have to match."""

from typing import Annotated

from fastapi import Depends, Query

from api.problems import invalid
from api.schemas.jobs import MOST_LABELS
from trainer.config.problems import Problem


def _labels(
    label: Annotated[list[str] | None, Query(description="key:value; may be repeated")] = None,
) -> dict[str, str]:
    if len(label or ()) > MOST_LABELS:
        msg = f"got {len(label or ())} labels, expected at most {MOST_LABELS}"
        raise invalid([Problem(("query", "label"), msg, "A job has no more.")])
    wanted: dict[str, str] = {}
    problems = []
    for text in label or []:
        key, colon, value = text.partition(":")
        loc = ("query", "label")
        if not key or not colon or "\0" in text:
            problems.append(
                Problem(loc, f"got {text!r}, expected key:value", "For example label=team:search.")
            )
        elif wanted.setdefault(key, value) != value:
            problems.append(
                Problem(loc, f"got two values of {key!r}, but a job has one", "Send one of them.")
            )
    if problems:
        raise invalid(problems)
    return wanted


LabelFilters = Annotated[dict[str, str], Depends(_labels)]
