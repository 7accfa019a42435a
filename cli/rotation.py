"""Keeps the log files of child processes small. They write through a descriptor that they keep, so a file is
copied and emptied in place; lines that are written in that very moment may be lost."""

import os
import shutil
from pathlib import Path

MOST_BYTES = 32 << 20
KEPT = 3
"""Older files of each log: `api.log.1` is the newest of them."""


def rotate(log: Path, most_bytes: int = MOST_BYTES, kept: int = KEPT) -> bool:
    """Move what a log holds into `<log>.1` once it is larger than `most_bytes`; whether that was so."""
    if not log.exists() or log.stat().st_size <= most_bytes:
        return False
    for number in range(kept, 1, -1):
        older = numbered(log, number - 1)
        if older.exists():
            older.replace(numbered(log, number))
    with log.open("rb") as source, numbered(log, 1).open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    os.truncate(log, 0)
    return True


def numbered(log: Path, number: int) -> Path:
    """An older file of a log."""
    return log.with_name(f"{log.name}.{number}")
