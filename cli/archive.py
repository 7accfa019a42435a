"""Store a checkpoint's archive: a tar stream of the server, unpacked while it arrives."""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

from cli.errors import CliError
from regatta_client.downloads import new_folder

BLOCK = 1 << 20


class ByteStream(io.RawIOBase):
    """A readable file over chunks of bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks: Iterator[bytes] = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def store_archive(
    chunks: Iterable[bytes],
    files: Iterable[Mapping[str, Any]],
    target: Path,
    advance: Callable[[int], None] = lambda count: None,
) -> None:
    """Unpack a tar stream into `target`, which appears only when every file is whole.

    `files` are the manifest entries (`path`, `bytes`, `sha256`) that the unpacked files must match.

    Raises:
        CliError: the target is in use, a member would leave it or is not a plain file, or a file is not
            what the manifest says.
    """
    refuse_used(target)
    with new_folder(target) as partial:
        check_manifest(unpack(ByteStream(chunks), partial, advance), files)


def refuse_used(target: Path) -> None:
    """Raises CliError unless `target` is free: absent or an empty directory."""
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise CliError(f"{target} exists and is not an empty directory. Name another, or remove it first.")


def unpack(stream: ByteStream, directory: Path, advance: Callable[[int], None]) -> dict[str, tuple[int, str]]:
    """Write the plain files of a tar stream below `directory`; returns path → (bytes, sha256)."""
    written: dict[str, tuple[int, str]] = {}
    try:
        with tarfile.open(fileobj=io.BufferedReader(stream, BLOCK), mode="r|") as archive:
            for member in archive:
                if member.isdir():
                    continue
                name = member_path(member)
                source = archive.extractfile(member)
                if source is None:
                    raise CliError(f"The archive is broken: {name} has no content.")
                written[str(name)] = _write(source, directory / name, advance)
    except (tarfile.TarError, EOFError) as error:
        raise CliError(f"The archive is broken or was cut: {error}. Try again.") from error
    return written


def member_path(member: tarfile.TarInfo) -> PurePosixPath:
    """Where a member goes, relative to the target: its path without the one folder that holds all members.

    Raises:
        CliError: it is a link or device, or its path would leave the target.
    """
    path = PurePosixPath(member.name)
    unsafe = path.is_absolute() or ".." in path.parts or len(path.parts) < 2 or "\0" in member.name
    if not member.isfile() or unsafe:
        raise CliError(
            f"The archive holds {member.name!r}, which is not a plain file inside it. Nothing was stored."
        )
    return PurePosixPath(*path.parts[1:])


def check_manifest(digests: Mapping[str, tuple[int, str]], files: Iterable[Mapping[str, Any]]) -> None:
    """Raises CliError unless the files are exactly those of the manifest."""
    expected = {entry["path"]: (entry["bytes"], entry["sha256"]) for entry in files}
    for path in sorted(expected.keys() | digests.keys()):
        if path not in digests:
            raise CliError(f"The archive lacks {path}. Try again.")
        if path not in expected:
            raise CliError(
                f"The archive holds {path}, which the checkpoint does not list. Nothing was stored."
            )
        if digests[path] != expected[path]:
            raise CliError(f"{path} arrived damaged: its sha256 or length is not the listed one. Try again.")


def _write(source: IO[bytes], path: Path, advance: Callable[[int], None]) -> tuple[int, str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, count = hashlib.sha256(), 0
    with path.open("xb") as file:
        while block := source.read(BLOCK):
            file.write(block)
            digest.update(block)
            count += len(block)
            advance(len(block))
        file.flush()
        os.fsync(file.fileno())
    return count, digest.hexdigest()
