"""Paths that a user gives, held inside the folders that are allowed."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from trainer.config.problems import Problem
from trainer.config.values import show

REFERENCES = ("job:", "dataset:")

#: What lies in the folder of a job besides its output.
RESERVED = ("attempts", "inputs", "config.json")
LONGEST_NAME = 255
LONGEST_PATH = 1024
LONGEST_GIVEN = 4095
"""Bytes that the kernel takes for a path; following links in a longer one takes ever longer."""

References = Mapping[tuple[str, str], Path | None]
"""What a service knows of references (`job:…`, `dataset:…`): by argument and text of the reference the file
or folder to check in its place; None: there is none yet, and nothing is checked.
"""


@dataclass(frozen=True)
class Roots:
    """Where jobs may read models and data from.

    Attributes:
        models, data: folders.
        hub: models that are in no folder and not in the cache of the Hugging Face hub may be fetched.
        references: what references stand for; they stay in the config as they are.
    """

    models: tuple[Path, ...]
    data: tuple[Path, ...]
    hub: bool = False
    references: References = field(default_factory=dict, hash=False)

    def to_text(self) -> str:
        """The roots as JSON, to be handed to another process."""
        folders = {"models": list(map(str, self.models)), "data": list(map(str, self.data))}
        return json.dumps({**folders, "hub": self.hub})

    @classmethod
    def from_text(cls, text: str) -> "Roots":
        """What `to_text` gave."""
        content = json.loads(text)
        models, data = (tuple(map(Path, content[name])) for name in ("models", "data"))
        return cls(models, data, content["hub"])


@dataclass(frozen=True)
class Finder:
    """Finds what a user names, in the folders of one kind.

    Attributes:
        kind: `model` or `data`, for messages.
        roots: the allowed folders; None: everything is allowed, and relative paths start at `base`.
        base: see `roots`; None: the current folder.
        references: see `Roots`.
    """

    kind: str
    roots: tuple[Path, ...] | None
    base: Path | None = None
    references: References = field(default_factory=dict, hash=False)

    def or_inside(self, folder: Path | None) -> "Finder":
        """A finder that allows `folder` as well."""
        return replace(self, roots=(*self.roots, folder)) if self.roots is not None and folder else self

    def folder(self, name: str, given: str) -> Path | Problem:
        """The folder that argument `name` gives, with symbolic links followed, or what is wrong with it."""
        found = self.path(name, given)
        if isinstance(found, Path) and not found.is_dir():
            return Problem((name,), f"{show(given)} is not a folder", "Give the folder that holds the files.")
        return found

    def path(self, name: str, given: str) -> Path | Problem:
        """The file or folder that argument `name` gives; see `folder`. It is looked for once."""
        if (name, given) not in self._found:
            self._found[name, given] = self._find(name, given)
        return self._found[name, given]

    @cached_property
    def _found(self) -> dict[tuple[str, str], Path | Problem]:
        return {}

    def _find(self, name: str, given: str) -> Path | Problem:
        if found := self.references.get((name, given)):
            return found
        if given.startswith(REFERENCES):
            msg = f"got {show(given)}: only a service can refer to jobs and uploaded data, and not here"
            return Problem((name,), msg, f"Give a folder{self.place()}.")
        if self.roots is not None and (problem := climbs(name, given)):
            return problem
        if len(os.fsencode(given)) > LONGEST_GIVEN:
            return Problem(
                (name,), f"got {show(given)}, expected a shorter path", f"Give a folder{self.place()}."
            )
        try:
            return self._existing(name, given)
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return Problem((name,), f"got {show(given)}: {reason}", f"Give a folder{self.place()}.")

    def refers(self, name: str, given: str) -> bool:
        """Whether the argument is a reference that is known."""
        return (name, given) in self.references

    def awaits(self, name: str, given: str) -> bool:
        """Whether the argument refers to what is not there yet."""
        return self.refers(name, given) and self.references[name, given] is None

    def finds(self, given: str) -> bool:
        """Whether anything of that name is there, allowed or not."""
        return any(os.path.lexists(path) for path in self._candidates(given))

    def allows(self, path: Path) -> bool:
        """Whether `path`, with symbolic links followed, lies in an allowed folder."""
        return self.roots is None or self._real(path) is not None

    def _real(self, path: str | Path) -> str | None:
        """The path with symbolic links followed; None when it leads out of the allowed folders."""
        try:
            real = os.path.realpath(path)
        except OSError:
            return None
        return real if self.roots is None or os.path.join(real, "").startswith(self._allowed) else None

    @cached_property
    def _allowed(self) -> tuple[str, ...]:
        """The allowed folders, with symbolic links followed and a slash behind."""
        folders = (*(self.roots or ()), *filter(None, self.references.values()))
        return tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)

    def _existing(self, name: str, given: str) -> Path | Problem:
        real = [path for path in map(self._real, self._candidates(given)) if path is not None]
        if not real:
            return Problem(
                (name,),
                f"{show(given)} is outside the allowed {self.kind} folders",
                f"Give a folder{self.place()}.",
            )
        for path in sorted(real, key=lambda path: not os.path.isdir(path)):
            if os.path.exists(path):
                return Path(path)
        return Problem(
            (name,), f"{show(given)} does not exist{self.place()}", f"Give a folder{self.place()}."
        )

    def _candidates(self, given: str) -> list[str]:
        if self.roots is None:
            return [os.path.join(self.base or os.getcwd(), given)]
        return [os.path.join(root, given) for root in self.roots]

    def place(self) -> str:
        """Words for messages: where things are looked for."""
        if self.roots is None:
            return ""
        return f" under {' or '.join(map(str, self.roots))}" if self.roots else "; no folder is allowed yet"


def climbs(name: str, given: str) -> Problem | None:
    """The problem of a path with `..` in it."""
    if ".." in PurePosixPath(given).parts:
        return Problem((name,), f"got {show(given)}, expected a path without ..", "Write the path out.")
    return None


def output_folder(given: str, roots: Roots | None, base: Path | None) -> str | Problem:
    """Where a job writes: absolute when `base` is known or anything is allowed, else as given, relative."""
    name = "output_dir"
    if roots is None:
        return str((base or Path.cwd()) / given)
    if problem := climbs(name, given):
        return problem
    hint = "Use for example ./checkpoints."
    path = PurePosixPath(given)
    if base is not None and path.is_relative_to(base):
        path = path.relative_to(base)
    if path.is_absolute():
        msg = f"got {show(given)}, expected a relative path: a job writes inside its own folder"
        return Problem((name,), msg, hint)
    if not path.parts or path.parts[0] in RESERVED:
        return Problem((name,), f"got {show(given)}, expected a folder of its own inside the job's", hint)
    if len(given.encode()) > LONGEST_PATH or max(len(part.encode()) for part in path.parts) > LONGEST_NAME:
        return Problem((name,), f"got {show(given)}, expected a shorter path", hint)
    if base is None:
        return given
    if not Finder("output", (base,)).allows(base / path):
        return Problem((name,), f"got {show(given)}, a link that leads out of the folder of the job", hint)
    return str(base / path)
