"""Files of a model folder: only plain ones inside the allowed folders are read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainer.config.preflight.paths import Finder
from trainer.config.problems import Problem
from trainer.config.values import show

LARGEST_JSON = 100 * 1024 * 1024


class FolderError(Exception):
    """Something in the folder cannot be used."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def problem_of(loc: tuple[str, ...], error: FolderError | OSError) -> Problem:
    """The error as a problem at `loc`."""
    if isinstance(error, OSError):
        return Problem(loc, f"{error.filename}: {error.strerror}", "Make it readable.")
    return Problem(loc, str(error), error.hint)


def plain_file(folder: Path, name: str, finder: Finder) -> Path:
    """A regular, not empty file of the folder that does not lead outside the allowed folders.

    Raises:
        FolderError: it is none.
        OSError: it cannot be looked at.
    """
    path = folder / name
    if not path.is_file():
        raise FolderError(f"{folder} has no file {name}", "Copy the whole model folder.")
    if not finder.allows(path):
        raise FolderError(f"{name} is a link to a place outside the allowed folders", "Copy the file itself.")
    if path.stat().st_size == 0:
        raise FolderError(f"{name} is empty", "Copy the file again.")
    return path


def check_if_there(folder: Path, names: Iterable[str], finder: Finder) -> None:
    """Look at files that are read when they are there.

    Raises:
        FolderError: one leads out of the allowed folders, or is a pipe or the like, which would never end.
        OSError: one cannot be looked at.
    """
    for path in (folder / name for name in names):
        if not path.is_symlink() and not path.exists():
            continue
        if not finder.allows(path):
            msg = f"{path.name} is a link to a place outside the allowed folders"
            raise FolderError(msg, "Copy the file itself.")
        if not path.is_file():
            raise FolderError(f"{path.name} is no plain file", "Copy the file itself, or remove it.")


def small_file(path: Path) -> bytes:
    """The content of a file that is never large.

    Raises:
        FolderError: it is larger than 100 MiB.
        OSError: it cannot be read.
    """
    if path.stat().st_size > LARGEST_JSON:
        msg = f"{path.name} is larger than 100 MiB, expected a small file"
        raise FolderError(msg, "Copy the file that belongs to the model.")
    return path.read_bytes()


def json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        FolderError: it is not JSON in UTF-8, or holds something else.
        OSError: it cannot be read.
    """
    try:
        value = json.loads(small_file(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path.name} is not JSON in UTF-8: {error}", "Copy the file again.") from None
    if not isinstance(value, dict):
        raise FolderError(f"{path.name} holds {show(value)}, expected a JSON object", "Copy the file again.")
    return value
