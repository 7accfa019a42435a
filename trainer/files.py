"""Files that are either whole or not there, and folders that one process has for itself."""

import errno
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


class WriteError(OSError):
    """A file cannot be written; unlike the system's own errors it always names the file."""

    @property
    def folder(self) -> Path:
        """Where the file was to be."""
        return Path(self.filename).parent


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Inside, a file is written.

    Raises:
        WriteError: the system does not let it.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or isinstance(error, WriteError):
            raise
        raise WriteError(error.errno, error.strerror, str(path)) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, in the form Hugging Face's tools write."""
    with atomic_file(path) as file:
        file.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def write_json_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON lines file atomically."""
    with atomic_file(path) as file:
        for record in records:
            file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Inside, no other process that asks for it has this folder, which is made. Its end lets it go.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the block ends well and leaves no trace when it does
    not.

    Raises:
        WriteError: the system does not let it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path), temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def refuse_cut_off(path: Path, size: int) -> None:
    """Look whether a file that a library wrote has all its bytes, for those that do not look themselves.

    Raises:
        WriteError: it has fewer than `size`, as on a disk that is full.
    """
    if path.stat().st_size < size:
        raise WriteError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
