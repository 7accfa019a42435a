"""Writes the page of settings from their declarations: `python -m store.settings_page [FILE]`."""

import sys
from pathlib import Path

from pydantic.fields import FieldInfo

from store.settings import Settings

FILE = Path(__file__).parents[1] / "docs" / "settings.md"

_HEAD = """# Settings

Environment variables, read when a part of the service starts; a name that is nearly one of them is refused.
Generated: `python -m store.settings_page`.

| variable | default | is |
| --- | --- | --- |
"""


def render() -> str:
    """The page, in Markdown."""
    return _HEAD + "".join(_row(name, field) for name, field in Settings.model_fields.items())


def _row(name: str, field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, tuple):
        shown = ", ".join(map(str, default))
    else:
        shown = "" if default == Path() else str(default)
    cell = f"`{shown}`" if shown else ""
    return f"| `REGATTA_{name.upper()}` | {cell} | {field.description} |\n"


def main(arguments: list[str]) -> None:
    """Write the page to the given file, or to docs/settings.md."""
    path = Path(arguments[0]) if arguments else FILE
    path.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
