"""Takes the values of secrets out of what a trainer writes. Standard library only."""

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"


class Mask:
    """Replaces every occurrence of some values, also as JSON and URLs write them."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values for form in _forms(value) if form}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """The text without the values."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def tree(self, value: Any) -> Any:
        """A JSON value with all its texts masked, names of members too."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self.tree(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self.tree(part) for part in value]
        return value


NOTHING = Mask()
"""For an attempt without secrets."""


def _forms(value: str) -> tuple[str, ...]:
    return (
        value,
        json.dumps(value)[1:-1],
        repr(value)[1:-1],
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
    )
