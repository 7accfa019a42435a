"""What jobs produce, kept under keys: the interface, and what its implementations share."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

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

    def to_json(self) -> "bytes":
        """The manifest as it is stored."""
        return _MANIFEST.dump_json(self)

    @classmethod
    def from_json(cls, data: "bytes") -> "Manifest":
        """The stored manifest. Raises: pydantic.ValidationError for what is none."""
        return _MANIFEST.validate_json(data)


_MANIFEST = TypeAdapter(Manifest)


@dataclass(frozen=True)
class Stat:
    """Size in bytes and time of the last change (unix seconds) of an object."""

    bytes: int
    modified_at: float


class Artifacts(Protocol):
    """Objects under slash-separated keys. Missing objects raise FileNotFoundError, bad keys ArtifactError;
    what may work later raises OSError (ArtifactsUnavailable when a server does not answer as it should).
    """

    def publish_directory(self, local: Path, key: str) -> Manifest:
        """Store all files below `local` under `key`: its manifest tells of all of them, or there is none."""
        ...

    def publish_part(self, local: Path, key: str) -> tuple[FileEntry, ...]:
        """Store all files below `local` as a part of the directory `key`, which has no manifest yet."""
        ...

    def complete(self, key: str, manifest: Manifest) -> None:
        """Give a directory whose parts are all there its manifest. Raises: ArtifactError when one is not."""
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
        """Raise ArtifactError or ArtifactsUnavailable unless objects can be written."""
        ...


_PART = re.compile(r"[^\x00-\x1f\x7f/\\]{1,255}")
TEMPORARY = ".tmp"
_RESERVED = frozenset({".", "..", MANIFEST, TEMPORARY})


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


def regular_files(local: Path) -> list[str]:
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


def describe(folder: Path, name: str) -> FileEntry:
    """Size and hash of a local file."""
    with (folder / name).open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
        return FileEntry(name, file.tell(), digest)


def require_files(artifacts: Artifacts, key: str, manifest: Manifest) -> None:
    """Raises: ArtifactError unless the directory `key` has all files of the manifest, in their sizes."""
    for entry in manifest.files:
        try:
            found = artifacts.stat(f"{key}/{entry.path}").bytes
        except FileNotFoundError:
            raise ArtifactError(
                f"{key}/{entry.path}, which another host has stored, is not there; "
                "all hosts need the same artifacts (REGATTA_ARTIFACTS_URL)"
            ) from None
        if found != entry.bytes:
            raise damaged(key, entry)


def damaged(key: str, entry: FileEntry) -> ArtifactError:
    """What is raised for a file of the directory `key` that is not what was published."""
    return ArtifactError(f"{key}/{entry.path} is damaged: its size or sha256 differs from the manifest")
