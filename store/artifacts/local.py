"""Artifacts in a folder."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from store.artifacts.protocol import (
    CHUNK,
    MANIFEST,
    TEMPORARY,
    FileEntry,
    Manifest,
    Stat,
    checked_key,
    damaged,
    describe,
    regular_files,
    require_files,
)
from store.errors import ArtifactError


class LocalArtifacts:
    """Artifacts in a folder. Directories are published by hard link where the file system allows it, so a
    checkpoint costs no second copy; publishers must therefore replace files, never change them in place."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._temporary = self.root / TEMPORARY

    def publish_directory(self, local: Path, key: str) -> Manifest:
        target = self._path(key)
        names = regular_files(local)
        staging = self._new_temporary()
        staging.mkdir()
        try:
            for name in names:
                _link_or_copy(local / name, staging / name)
            manifest = Manifest(tuple(describe(staging, name) for name in names))
            if not self._has(key, manifest):
                _write_synced(staging / MANIFEST, manifest.to_json())
                self._move_into_place(staging, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return manifest

    def publish_part(self, local: Path, key: str) -> tuple[FileEntry, ...]:
        target = self._path(key)
        names = regular_files(local)
        target.mkdir(parents=True, exist_ok=True)
        for name in names:
            staged = self._new_temporary()
            _link_or_copy(local / name, staged)
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged, target / name)
            staged.unlink(missing_ok=True)  # still there when both are links to the same file
        _sync_folder(target)
        return tuple(describe(target, name) for name in names)

    def complete(self, key: str, manifest: Manifest) -> None:
        require_files(self, key, manifest)
        staged = self._new_temporary()
        _write_synced(staged, manifest.to_json())
        staged.replace(self._path(key) / MANIFEST)
        _sync_folder(self._path(key))

    def _has(self, key: str, manifest: Manifest) -> bool:
        try:
            return self.manifest(key) == manifest
        except FileNotFoundError:
            return False

    def manifest(self, key: str) -> Manifest:
        return Manifest.from_json(b"".join(self._read(self._path(key) / MANIFEST, 0, None)))

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
                if describe(staging, entry.path) != entry:
                    raise damaged(key, entry)
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


def _link_or_copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another device, or a file system without hard links
        shutil.copy2(source, target, follow_symlinks=False)
        _sync_file(target)


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
