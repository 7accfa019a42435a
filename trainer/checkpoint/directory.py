"""Directories that appear whole or not at all.

A directory is filled under a hidden name beside its final one, every file and the directory itself are synced
to the disk, and then it is renamed. ``manifest.json``, written last, lists bytes and SHA-256 of every other
file, so a reader can tell later damage (a truncated file, an incomplete copy) from a whole directory. Hosts
that share no folder write a manifest each, of their own files; that of the first one says how many there are.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from trainer.files import write_json

MANIFEST = "manifest.json"
#: The name that the final model has while it is written.
FINAL = "final"
#: Entries of the manifest, by path below the directory.
Checksums = Mapping[str, Mapping[str, Any]]

#: So many files are read at once.
_THREADS = 4

_PARTIAL = ".partial"
_REMOVED = ".removed"
_REPLACED = ".replaced"


class Part(NamedTuple):
    """Which part of a directory a host writes that shares no folder with others: its number of so many."""

    number: int = 0
    count: int = 1


WHOLE = Part()


def partial_name(target: Path) -> Path:
    """The hidden name under which `target` is filled."""
    return target.parent / f".{target.name}{_PARTIAL}"


def begin_directory(partial: Path) -> None:
    """Make an empty directory to fill; what an interrupted write left there is removed."""
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)


def put_in_place(partial: Path, target: Path) -> None:
    """Give a filled and synced directory its final name, also when another one has it."""
    replaced = _aside(target, _REPLACED) if target.exists() else None
    partial.rename(target)
    sync(target.parent)
    if replaced:
        shutil.rmtree(replaced)


def remove_directory(target: Path) -> None:
    """Delete a directory; a crash in between never leaves half of it under its name."""
    shutil.rmtree(_aside(target, _REMOVED))


def remove_leftovers(parent: Path) -> None:
    """Delete what interrupted writes left in `parent`: of checkpoints, of the final model, of single files.

    A checkpoint that was about to be replaced, by one that did not come to bear its name, is put back.
    """
    for replaced in parent.glob(f".checkpoint-*{_REPLACED}"):
        target = parent / replaced.name.removeprefix(".").removesuffix(_REPLACED)
        if target.exists():
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            replaced.rename(target)
    for pattern in (f".checkpoint-*{_PARTIAL}", f".checkpoint-*{_REMOVED}", f".{FINAL}*{_PARTIAL}"):
        for leftover in parent.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)
    for leftover in parent.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def write_manifest(directory: Path, known: Checksums | None = None, part: Part = WHOLE) -> None:
    """Write ``manifest.json``: ``{"files": {relative path: {"bytes", "sha256"}}}``.

    Args:
        known: entries of files whose checksums were computed already.
        part: of what was saved the directory has this.
    """
    names = (
        path.relative_to(directory).as_posix()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    )
    files = {name: (known or {}).get(name) or checksum(directory / name) for name in names}
    several = {"parts": part.count} if part == (0, part.count) and part.count > 1 else {}
    write_json(directory / _manifest_name(part.number), {"files": files, **several})


def checksum(path: Path) -> dict[str, Any]:
    """A file's entry in the manifest."""
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def damage(directory: Path, *, contents: bool = True) -> str | None:
    """What makes `directory` differ from its manifest, in a few words, or None when it is whole.

    Args:
        directory: one that has a manifest when it is whole.
        contents: compare the SHA-256 of every file too, not only its size.
    """
    expected: dict[str, tuple[int, str]] = {}
    number, count = 0, 1
    while number < count:
        manifest = _manifest_name(number)
        try:
            content = json.loads((directory / manifest).read_text(encoding="utf-8"))
            for name, entry in content["files"].items():
                expected[_inside(name)] = int(entry["bytes"]), str(entry["sha256"])
            count = max(count, int(content.get("parts", 1)))
        except FileNotFoundError:
            return f"it has no {manifest}"
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return f"its {manifest} cannot be read"
        number += 1
    for name, (size, _) in expected.items():
        path = directory / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes where {size} were written"
    if contents:
        with ThreadPoolExecutor(_THREADS, "checksum") as pool:
            found = pool.map(_sha256, [directory / name for name in expected])
            for (name, (_, sha256)), computed in zip(expected.items(), found, strict=True):
                if computed != sha256:
                    return f"the contents of {name} have changed since it was written"
    return None


def _manifest_name(part: int) -> str:
    return f"manifest-{part}.json" if part else MANIFEST


def _aside(target: Path, suffix: str) -> Path:
    """Give `target` a hidden name; returns it."""
    aside = target.parent / f".{target.name}{suffix}"
    shutil.rmtree(aside, ignore_errors=True)
    return target.rename(aside)


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(name)
    return name


def sync_tree(directory: Path) -> None:
    """Flush every file and folder below `directory`, and itself, to the disk."""
    for path in directory.rglob("*"):
        sync(path)
    sync(directory)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
