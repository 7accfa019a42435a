"""Artifacts in an S3 bucket.

A published directory is its files and, written last, its manifest: without a manifest there is no directory.
Requests are tried again for a while; a stream of bytes that breaks goes on where it was. Memory stays within
a few parts of an upload, whatever the size of a file.
"""

import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

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
from store.errors import ArtifactError, ArtifactsUnavailable

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult

PART_BYTES = 16 << 20
MOST_PARTS = 9000
"""S3 takes 10,000 parts of a file."""
PARTS_AT_ONCE = 4
PAGE = 1000
"""Keys of one answer to a listing."""
RESUMES = 5
"""So often in a row a stream may break without one more byte."""
TIMEOUT = timedelta(seconds=120)
"""Of one request with its body."""
CONNECT_TIMEOUT = timedelta(seconds=5)
RETRY_FOR = timedelta(seconds=20)
PROBE_RETRY_FOR = timedelta(seconds=2)

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class S3Artifacts:
    """Artifacts below a prefix of a bucket. Nobody else may write there."""

    def __init__(self, bucket: str, prefix: str = "", *, endpoint: str | None = None) -> None:
        """
        Args:
            endpoint: URL of a server other than AWS; it is addressed by path, and over plain HTTP when the
                URL says so. Region and credentials are those of the AWS_* variables, of the container or of
                the machine.
        """
        self.bucket = bucket
        self.prefix = prefix
        self._endpoint = endpoint
        self._store = self._connect(retry_for=RETRY_FOR, retries=10)
        self._probe = self._connect(retry_for=PROBE_RETRY_FOR, retries=1)

    @classmethod
    def from_environment(cls, bucket: str, prefix: str) -> "S3Artifacts":
        """Artifacts on the server that AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL name, else on AWS."""
        return cls(bucket, prefix, endpoint=_endpoint(os.environ))

    def _connect(self, *, retry_for: timedelta, retries: int) -> S3Store:
        options: dict[str, Any] = {}
        if self._endpoint:
            options |= {"endpoint": self._endpoint, "virtual_hosted_style_request": False}
        try:
            return S3Store(
                self.bucket,
                prefix=self.prefix or None,
                client_options={
                    "allow_http": (self._endpoint or "").startswith("http://"),
                    "timeout": TIMEOUT,
                    "connect_timeout": CONNECT_TIMEOUT,
                },
                retry_config={"max_retries": retries, "retry_timeout": retry_for},
                **options,
            )
        except BaseError as error:
            raise ArtifactError(
                f"artifacts_url: the bucket {self.bucket!r} cannot be used with these AWS_* variables"
            ) from error

    def publish_directory(self, local: Path, key: str) -> Manifest:
        checked_key(key)
        names = regular_files(local)
        if (present := self._manifest_or_none(key)) is not None:
            if present == Manifest(tuple(describe(local, name) for name in names)):
                return present
            self.delete_prefix(key)
        try:
            manifest = Manifest(tuple(self._upload(local, name, key) for name in names))
        except FileNotFoundError:  # the directory is being removed: what is there of it will not be needed
            with suppress(OSError):
                self.delete_prefix(key)
            raise
        self._remove_others(key, manifest)
        self._put(f"{key}/{MANIFEST}", manifest.to_json())
        return manifest

    def publish_part(self, local: Path, key: str) -> tuple[FileEntry, ...]:
        checked_key(key)
        return tuple(self._upload(local, name, key) for name in regular_files(local))

    def complete(self, key: str, manifest: Manifest) -> None:
        require_files(self, key, manifest)
        self._put(f"{key}/{MANIFEST}", manifest.to_json())

    def manifest(self, key: str) -> Manifest:
        checked_key(key)
        return Manifest.from_json(b"".join(self._read(f"{key}/{MANIFEST}", 0, None)))

    def fetch_directory(self, key: str, local: Path) -> Manifest:
        manifest = self.manifest(key)
        local.parent.mkdir(parents=True, exist_ok=True)
        staging = local.parent / f".{local.name}.{uuid4().hex}"
        staging.mkdir()
        try:
            for entry in manifest.files:
                self._download(key, entry, staging)
            staging.rename(local)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return manifest

    def put_bytes(self, key: str, data: bytes) -> None:
        checked_key(key)
        self._put(key, data)

    def open(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        checked_key(key)
        return self._read(key, start, length)

    def stat(self, key: str) -> Stat:
        checked_key(key)
        with _asking(self.bucket, key):
            found = obstore.head(self._store, key)
        return Stat(found["size"], found["last_modified"].timestamp())

    def list(self, prefix: str) -> Sequence[str]:
        checked_key(prefix)
        return sorted(key for keys in self._pages(prefix) for key in keys if not _is_manifest(key))

    def delete_prefix(self, prefix: str) -> None:
        checked_key(prefix)
        marks = [key for keys in self._pages(prefix) for key in keys if _is_manifest(key)]
        for begin in range(0, len(marks), PAGE):  # first of all, no directory may look complete any more
            self._delete(prefix, marks[begin : begin + PAGE])
        for keys in self._pages(prefix):
            self._delete(prefix, keys)
        self._delete(prefix, [prefix])

    def check(self) -> None:
        key = f"{TEMPORARY}/{uuid4().hex}"
        with _writing(self.bucket, key):
            obstore.put(self._probe, key, b"x", use_multipart=False)
            obstore.delete(self._probe, [key])

    def _upload(self, local: Path, name: str, key: str) -> FileEntry:
        """Store one file and describe the very bytes that were sent."""
        path = local / name
        digest, sent = sha256(), 0
        size = path.stat().st_size

        def pieces() -> Iterator[bytes]:
            nonlocal sent
            with path.open("rb") as file:
                while piece := file.read(CHUNK):
                    digest.update(piece)
                    sent += len(piece)
                    yield piece

        target = f"{key}/{name}"
        if size <= PART_BYTES:
            self._put(target, b"".join(pieces()))
        else:
            part = max(PART_BYTES, math.ceil(size / MOST_PARTS))
            with _writing(self.bucket, target):
                obstore.put(self._store, target, pieces(), chunk_size=part, max_concurrency=PARTS_AT_ONCE)
        return FileEntry(name, sent, digest.hexdigest())

    def _put(self, key: str, data: bytes) -> None:
        with _writing(self.bucket, key):
            obstore.put(self._store, key, data, use_multipart=False)

    def _download(self, key: str, entry: FileEntry, folder: Path) -> None:
        source = f"{key}/{entry.path}"
        checked_key(source)
        target = folder / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        digest, received = sha256(), 0
        with target.open("xb") as file:
            for piece in self._read(source, 0, None):
                digest.update(piece)
                received += len(piece)
                file.write(piece)
        if (received, digest.hexdigest()) != (entry.bytes, entry.sha256):
            raise damaged(key, entry)

    def _read(self, key: str, start: int, length: int | None) -> Iterator[bytes]:
        """The object's bytes, whatever breaks on the way. The first request is made at once."""
        if length == 0:
            self.stat(key)
            return iter(())
        try:
            first = self._get(key, start, length)
        except ArtifactsUnavailable:
            if start and start >= self.stat(key).bytes:
                return iter(())  # a server refuses such a range
            raise
        return self._pieces(key, first)

    def _pieces(self, key: str, result: "GetResult") -> Iterator[bytes]:
        position, end = result.range
        tag = result.meta["e_tag"]
        broken = 0
        while position < end:
            try:
                with _asking(self.bucket, key):
                    for piece in result.stream(min_chunk_size=CHUNK):
                        position += len(piece)
                        broken = 0
                        yield bytes(piece)
                if position < end:
                    raise ArtifactsUnavailable(f"{key}: the bucket {self.bucket!r} sent too few bytes")
            except ArtifactsUnavailable:
                broken += 1
                if broken > RESUMES:
                    raise
                result = self._get(key, position, end - position, tag)

    def _get(self, key: str, start: int, length: int | None, tag: str | None = None) -> "GetResult":
        options: GetOptions = {}
        if length is not None:
            options["range"] = (start, start + length)
        elif start:
            options["range"] = {"offset": start}
        if tag is not None:
            options["if_match"] = tag
        with _asking(self.bucket, key):
            return obstore.get(self._store, key, options=options)

    def _manifest_or_none(self, key: str) -> Manifest | None:
        try:
            return self.manifest(key)
        except FileNotFoundError:
            return None

    def _remove_others(self, key: str, manifest: Manifest) -> None:
        """Remove what an upload that was cut off has left."""
        wanted = {f"{key}/{entry.path}" for entry in manifest.files}
        for keys in self._pages(key):
            self._delete(key, [found for found in keys if found not in wanted])

    def _pages(self, prefix: str) -> Iterator[Sequence[str]]:
        """Keys of all objects below the folder `prefix`, a page at a time."""
        with _asking(self.bucket, prefix):
            for found in obstore.list(self._store, prefix, chunk_size=PAGE):
                yield [entry["path"] for entry in found]

    def _delete(self, prefix: str, keys: Sequence[str]) -> None:
        if keys:
            with _writing(self.bucket, prefix), suppress(FileNotFoundError):
                obstore.delete(self._store, keys)


def _endpoint(variables: Mapping[str, str]) -> str | None:
    return next((variables[name] for name in _ENDPOINTS if variables.get(name)), None)


def _is_manifest(key: str) -> bool:
    return key.rpartition("/")[2] == MANIFEST


@contextmanager
def _asking(bucket: str, key: str) -> Iterator[None]:
    """Turns the library's errors into ours; theirs show addresses and the server's answer."""
    try:
        yield
    except FileNotFoundError as error:
        if _code(error) == "NoSuchBucket":
            raise _unavailable(bucket, key, error) from None
        raise FileNotFoundError(key) from None
    except BaseError as error:
        raise _unavailable(bucket, key, error) from None


@contextmanager
def _writing(bucket: str, key: str) -> Iterator[None]:
    """The same for what writes: a file that is missing is a local one."""
    try:
        yield
    except BaseError as error:
        raise _unavailable(bucket, key, error) from None
    except FileNotFoundError as error:
        if "server returned" in str(error).lower():
            raise _unavailable(bucket, key, error) from None
        raise


def _unavailable(bucket: str, key: str, error: Exception) -> ArtifactsUnavailable:
    return ArtifactsUnavailable(f"the S3 bucket {bucket!r} cannot be used ({_reason(error)}), at {key!r}")


def _code(error: Exception) -> str | None:
    """The error code in an answer of S3."""
    match = re.search(r"<Code>([A-Za-z0-9.]{1,60})</Code>", str(error))
    return match[1] if match else None


def _reason(error: Exception) -> str:
    if code := _code(error):
        return code
    if match := re.search(r"status code: (\d{3}(?: [A-Z][A-Za-z]*)*)", str(error)):
        return match[1]
    return "no answer" if "HTTP error" in str(error) else type(error).__name__
