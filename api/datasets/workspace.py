"""Folders of uploads that are under way. Each is locked while it is used: what a crash has left is held by
nobody, and the next upload removes it.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from store.errors import ArtifactError

YOUNG_S = 60.0
"""A folder that has just been made may not be locked yet."""


@contextmanager
def upload_folder(root: Path, discard: Callable[[str], None] | None = None) -> Iterator[Path]:
    """An empty folder below `root`, removed with all that is in it at the end.

    Args:
        discard: removes what a crash has left of an upload among the artifacts, by its key; without it such
            an upload is left to somebody else.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_abandoned(root, discard)
    folder = root / uuid4().hex
    folder.mkdir(mode=0o700)
    try:
        lock = _lock(folder)
        try:
            yield folder
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _note(folder).unlink(missing_ok=True)


def note_key(folder: Path, key: str) -> None:
    """Remember beside the folder where among the artifacts its files go."""
    _note(folder).write_text(key)


def _note(folder: Path) -> Path:
    return folder.with_suffix(".key")


def _lock(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned(root: Path, discard: Callable[[str], None] | None) -> None:
    for folder in root.iterdir():
        note = _note(folder)
        if folder == note or (note.exists() and discard is None):
            continue
        # it may be in use, somebody else may be removing it, or the artifacts be away
        with suppress(OSError, ArtifactError):
            if time.time() - folder.stat().st_mtime > YOUNG_S:
                os.close(_lock(folder))
                if discard is not None and note.exists():
                    discard(note.read_text())
                shutil.rmtree(folder, ignore_errors=True)
                note.unlink(missing_ok=True)
