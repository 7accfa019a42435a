"""Remembers what was found out about files for as long as they are the same files, unchanged.

A file is known by device, inode, size and both times of change, to the nanosecond. What was found is kept
only if nothing had changed for a moment before and during the reading: times of change are coarse.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
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
    key = (what, tuple(map(str, files)))
    before = _stamps(files)
    with _lock:
        stamps, value = _known.get(key, (None, None))
        if before is not None and stamps == before:
            _known.move_to_end(key)
            return value
    found = read()
    if before is not None and before == _stamps(files):
        with _lock:
            _known[key] = (before, found)
            while len(_known) > MOST:
                _known.popitem(last=False)
    return found


def _stamps(files: Sequence[Path]) -> tuple[tuple[int, ...], ...] | None:
    """What tells the files from any others; None while that cannot be trusted."""
    try:
        found: list[os.stat_result] = [path.stat() for path in files]
    except OSError:
        return None
    settled = time.time() - SETTLED_S
    if any(max(status.st_mtime, status.st_ctime) > settled for status in found):
        return None
    return tuple((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in found)
