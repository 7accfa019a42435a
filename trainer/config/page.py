"""What the pages that are made from the config schemas share."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path


def cell(text: str) -> str:
    """Text as it stands in a cell of a table."""
    return text.replace("|", "\\|")


def write_page(
    arguments: Sequence[str], module: str, description: str, place: Path, render: Callable[[], str]
) -> None:
    """The command of a module that makes a page: writes it to the given file, or to its place in docs."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("file", nargs="?", type=Path, default=place, metavar="FILE", help=f"default: {place}")
    path: Path = parser.parse_args(arguments).file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(), encoding="utf-8")
