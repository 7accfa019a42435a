"""Remembers what was found out about files for as long as they are the same files, unchanged.

A file is known by device, inode, size and both times of change, to the nanosecond. What was found is kept
only if nothing had changed for a moment before and during the reading: times of change are coarse.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

MOST = 256
SETTLED_S = 2.0

T = TypeVar("T")

_lock = threading.Lock()
_known: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()


def while_unchanged(what: Hashable, files: Sequence[Path], read: Callable[[], T]) -> T:
    """What `read` gives, or has given since the files last changed; nobody may change it.

    Args:
        what: tells this reading of the files from others.
        read: reads nothing but these files.
    """
    names = tuple(map(str, files))
    return _remembered((what, names), partial(_stamps_of_files, names), read)


def folder_while_unchanged(what: Hashable, folder: Path, read: Callable[[], T]) -> T:
    """The same for what `read` finds in a folder: its entries and the files that they lead to, not what lies
    in folders below it.
    """
    return _remembered((what, str(folder)), partial(_stamps_of_folder, str(folder)), read)


def _remembered(key: Hashable, stamps: Callable[[], "_Stamps | None"], read: Callable[[], T]) -> T:
    before = stamps()
    with _lock:
        known, value = _known.get(key, (None, None))
        if before is not None and known == before:
            _known.move_to_end(key)
            return value
    found = read()
    if before is not None and before == stamps():
        with _lock:
            _known[key] = (before, found)
            while len(_known) > MOST:
                _known.popitem(last=False)
    return found


_Stamps = tuple[tuple[Any, ...], ...]
"""What tells files from any others."""


def _stamps_of_files(names: Sequence[str]) -> _Stamps | None:
    """None while it cannot be trusted."""
    try:
        return _trusted([(name, os.stat(name)) for name in names])
    except OSError:
        return None


def _stamps_of_folder(folder: str) -> _Stamps | None:
    try:
        found = [("", os.stat(folder))]
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append((entry.name, entry.stat(follow_symlinks=False)))
                if entry.is_symlink():
                    found.append((entry.name, entry.stat()))
    except OSError:
        return None
    return _trusted(found)


def _trusted(found: Sequence[tuple[str, os.stat_result]]) -> _Stamps | None:
    settled = time.time() - SETTLED_S
    if any(max(status.st_mtime, status.st_ctime) > settled for _, status in found):
        return None
    return tuple((name, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in found)
