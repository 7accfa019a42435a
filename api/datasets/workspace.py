"""Folders of uploads that are under way. Each is locked while it is used: what a crash has left is held by
nobody, and the next upload removes it.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

YOUNG_S = 60.0
"""A folder that has just been made may not be locked yet."""


@contextmanager
def upload_folder(root: Path) -> Iterator[Path]:
    """An empty folder below `root`, removed with all that is in it at the end."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_abandoned(root)
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


def _lock(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned(root: Path) -> None:
    for folder in root.iterdir():
        with suppress(OSError):  # in use, or somebody else is removing it
            if time.time() - folder.stat().st_mtime > YOUNG_S:
                os.close(_lock(folder))
                shutil.rmtree(folder, ignore_errors=True)
