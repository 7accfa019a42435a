"""What jobs produce, kept under keys: the interface, and its implementation on a file system."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pydantic import TypeAdapter

from store.errors import ArtifactError

CHUNK = 1 << 20
MANIFEST = ".manifest.json"


@dataclass(frozen=True)
class FileEntry:
    """One file of a published directory; `path` is relative to it, with forward slashes."""

    path: str
    bytes: int
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Manifest:
    """All files of a published directory, by path."""

    files: tuple[FileEntry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.files)


_MANIFEST = TypeAdapter(Manifest)


@dataclass(frozen=True)
class Stat:
    """Size in bytes and time of the last change (unix seconds) of an object."""

    bytes: int
    modified_at: float


class Artifacts(Protocol):
    """Objects under slash-separated keys. Missing objects raise FileNotFoundError, bad keys ArtifactError."""

    def publish_directory(self, local: Path, key: str) -> Manifest:
        """Store all files below `local` under `key`: readers see all of them or none."""
        ...

    def manifest(self, key: str) -> Manifest:
        """The files of a published directory."""
        ...

    def fetch_directory(self, key: str, local: Path) -> Manifest:
        """Copy a published directory to `local`, which must not exist; it appears complete or not at all."""
        ...

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store one object, replacing what was there."""
        ...

    def open(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The object's bytes from `start`, at most `length`, in pieces. Raises before the first piece."""
        ...

    def stat(self, key: str) -> Stat:
        """Size and time of one object."""
        ...

    def list(self, prefix: str) -> Sequence[str]:
        """Keys of all objects below the folder `prefix`, sorted."""
        ...

    def delete_prefix(self, prefix: str) -> None:
        """Remove the object or folder `prefix`; nothing happens when there is none."""
        ...

    def check(self) -> None:
        """Raise ArtifactError unless objects can be written."""
        ...


def artifacts_for(url: str) -> Artifacts:
    """The artifacts behind a URL.

    Raises: ArtifactError for a scheme this version does not know.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return LocalArtifacts(Path(unquote(parts.path)))
    raise ArtifactError(
        f"artifacts_url: got {url!r}, expected file:///<absolute folder>; set REGATTA_ARTIFACTS_URL"
    )


_PART = re.compile(r"[^\x00-\x1f\x7f/\\]{1,255}")
_TEMPORARY = ".tmp"
_RESERVED = frozenset({".", "..", MANIFEST, _TEMPORARY})


def checked_key(key: str) -> PurePosixPath:
    """The key as a relative path.

    Raises: ArtifactError for an empty or absolute key, `.` or `..`, control characters, backslashes.
    """
    parts = key.split("/")
    if len(key) > 1024 or any(part in _RESERVED or not _PART.fullmatch(part) for part in parts):
        raise ArtifactError(
            f"{key[:200]!r} is not an artifact key: expected names joined by '/', none of them '..'"
        )
    return PurePosixPath(*parts)


class LocalArtifacts:
    """Artifacts in a folder. Directories are published by hard link where the file system allows it, so a
    checkpoint costs no second copy; publishers must therefore replace files, never change them in place."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._temporary = self.root / _TEMPORARY

    def publish_directory(self, local: Path, key: str) -> Manifest:
        target = self._path(key)
        names = _regular_files(local)
        staging = self._new_temporary()
        staging.mkdir()
        try:
            for name in names:
                _link_or_copy(local / name, staging / name)
            manifest = Manifest(tuple(_describe(staging, name) for name in names))
            if not self._has(key, manifest):
                _write_synced(staging / MANIFEST, _MANIFEST.dump_json(manifest))
                self._move_into_place(staging, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return manifest

    def _has(self, key: str, manifest: Manifest) -> bool:
        try:
            return self.manifest(key) == manifest
        except FileNotFoundError:
            return False

    def manifest(self, key: str) -> Manifest:
        return _MANIFEST.validate_json(b"".join(self._read(self._path(key) / MANIFEST, 0, None)))

    def fetch_directory(self, key: str, local: Path) -> Manifest:
        manifest = self.manifest(key)
        local.parent.mkdir(parents=True, exist_ok=True)
        staging = local.parent / f".{local.name}.{uuid4().hex}"
        staging.mkdir()
        try:
            for entry in manifest.files:
                target = staging / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._path(f"{key}/{entry.path}"), target, follow_symlinks=False)
                if _describe(staging, entry.path) != entry:
                    raise ArtifactError(
                        f"{key}/{entry.path} is damaged: its size or sha256 differs from the manifest"
                    )
            staging.rename(local)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return manifest

    def put_bytes(self, key: str, data: bytes) -> None:
        target = self._path(key)
        temporary = self._new_temporary()
        try:
            _write_synced(temporary, data)
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def open(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        return self._read(self._path(key), start, length)

    def stat(self, key: str) -> Stat:
        path = self._path(key)
        if not path.is_file():
            raise FileNotFoundError(key)
        status = path.stat()
        return Stat(status.st_size, status.st_mtime)

    def list(self, prefix: str) -> Sequence[str]:
        walk = os.walk(self._path(prefix))  # unlike rglob it bears folders that vanish
        files = (Path(folder, name) for folder, _, names in walk for name in names if name != MANIFEST)
        return sorted(path.relative_to(self.root).as_posix() for path in files)

    def delete_prefix(self, prefix: str) -> None:
        path = self._path(prefix)
        if path.is_file():
            path.unlink(missing_ok=True)
        elif path.exists():
            self._discard(path)

    def check(self) -> None:
        try:
            probe = self._new_temporary()
            probe.write_bytes(b"x")
            probe.unlink()
        except OSError as error:
            raise ArtifactError(f"artifacts cannot be written in {self.root}: {error.strerror}") from error

    def _path(self, key: str) -> Path:
        """Where the key lies. Raises: ArtifactError when a symlink leads out of the root."""
        path = self.root / checked_key(key)
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise ArtifactError(f"{key!r} leads out of the artifacts")
        return path

    def _read(self, path: Path, start: int, length: int | None) -> Iterator[bytes]:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
        file.seek(start)

        def pieces() -> Iterator[bytes]:
            left = length
            with file:
                while left is None or left > 0:
                    piece = file.read(CHUNK if left is None else min(CHUNK, left))
                    if not piece:
                        return
                    left = None if left is None else left - len(piece)
                    yield piece

        return pieces()

    def _move_into_place(self, staging: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            self._discard(target)
        staging.rename(target)
        _sync_folder(target.parent)

    def _discard(self, path: Path) -> None:
        """Make it invisible in one step, then remove it."""
        grave = self._new_temporary()
        with suppress(FileNotFoundError):  # somebody else is removing it
            path.rename(grave)
            shutil.rmtree(grave)

    def _new_temporary(self) -> Path:
        self._temporary.mkdir(parents=True, exist_ok=True)
        return self._temporary / uuid4().hex


def _regular_files(local: Path) -> list[str]:
    """Relative paths of all files below, sorted. Raises: ArtifactError for a link or a special file."""
    if not local.is_dir():
        raise ArtifactError(f"{local} is not a directory; nothing was published")
    names = []
    for path in sorted(local.rglob("*")):
        name = path.relative_to(local).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ArtifactError(f"{path} is a link or a special file; only files and folders are published")
        if path.is_file():
            checked_key(name)
            names.append(name)
    return names


def _link_or_copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another device, or a file system without hard links
        shutil.copy2(source, target, follow_symlinks=False)
        _sync_file(target)


def _describe(folder: Path, name: str) -> FileEntry:
    with (folder / name).open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
        return FileEntry(name, file.tell(), digest)


def _write_synced(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    _sync_file(path)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
