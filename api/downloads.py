"""Sends published directories: single files with ranges (RFC 9110) and whole directories as a tar stream."""

import base64
import re
import tarfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.problems import ApiError, not_found
from api.schemas.problems import answers
from store import tables
from store.artifacts import Artifacts, FileEntry
from store.errors import ArtifactError

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_BLOCK = tarfile.BLOCKSIZE


FILE_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {"application/octet-stream": {}}},
    206: {"description": "The range that was asked for", "content": {"application/octet-stream": {}}},
    304: {"description": "The client has these bytes already (If-None-Match)"},
} | answers(404, 416)
ARCHIVE_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The files, below one folder", "content": {"application/x-tar": {}}},
    304: {"description": "The client has these bytes already (If-None-Match)"},
} | answers(404)


def file_response(
    request: Request, artifacts: Artifacts, checkpoint: tables.Checkpoint, path: str
) -> Response:
    """One file of a checkpoint, or the one range of it that the request asks for.

    Only paths that the checkpoint lists are ever opened, so a path cannot lead out of it.

    Raises:
        ApiError: 404 for a path that is not listed, 416 for a range that the file does not have.
        FileNotFoundError, ArtifactError: the artifacts do not have the file as it was published.
    """
    return stored_file_response(request, artifacts, checkpoint.key, _listed(checkpoint, path))


def stored_file_response(request: Request, artifacts: Artifacts, directory: str, file: FileEntry) -> Response:
    """A file of a published directory, or the one range of it that the request asks for.

    Raises:
        ApiError: 416 for a range that the file does not have.
        FileNotFoundError, ArtifactError: the artifacts do not have the file as it was published.
    """
    etag = f'"{file.sha256}"'
    if _names(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=_validators(etag))
    _check_there(artifacts, directory, [file])
    part = _requested_part(request, etag, file.bytes)
    sent = part or range(file.bytes)
    headers = _validators(etag) | {
        "Accept-Ranges": "bytes",
        "Content-Length": str(len(sent)),
        "Content-Disposition": _attachment(file.path.rpartition("/")[2]),
        "Repr-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(file.sha256)).decode()}:",
    }
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{file.bytes}"
    return StreamingResponse(
        () if request.method == "HEAD" else artifacts.open(f"{directory}/{file.path}", sent.start, len(sent)),
        status_code=200 if part is None else 206,
        headers=headers,
        media_type="application/octet-stream",
    )


def archive_response(request: Request, artifacts: Artifacts, checkpoint: tables.Checkpoint) -> Response:
    """All files of a checkpoint as a tar that is made while it is sent; the same bytes every time.

    Raises:
        FileNotFoundError, ArtifactError: the artifacts do not have all files as they were published.
    """
    files = sorted((FileEntry(**entry) for entry in checkpoint.files), key=lambda file: file.path)
    heads = [_tar_head(f"{checkpoint.name}/{file.path}", file.bytes, checkpoint.created_at) for file in files]
    etag = f'"{sha256(b"".join(heads) + "".join(file.sha256 for file in files).encode()).hexdigest()}"'
    if _names(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=_validators(etag))
    _check_there(artifacts, checkpoint.key, files)
    length = sum(len(head) for head in heads) + sum(_padded(file.bytes) for file in files) + 2 * _BLOCK
    headers = _validators(etag) | {
        "Content-Length": str(length),
        "Content-Disposition": _attachment(f"{checkpoint.name}.tar"),
    }
    parts = () if request.method == "HEAD" else _tar_parts(artifacts, checkpoint.key, files, heads)
    return StreamingResponse(parts, headers=headers, media_type="application/x-tar")


def _listed(checkpoint: tables.Checkpoint, path: str) -> FileEntry:
    for entry in checkpoint.files:
        if entry["path"] == path:
            return FileEntry(**entry)
    where = f"/jobs/{checkpoint.job_id}/" + (
        "result" if checkpoint.is_result else f"checkpoints/{checkpoint.name}"
    )
    raise not_found("file", path, where)


def _check_there(artifacts: Artifacts, directory: str, files: Sequence[FileEntry]) -> None:
    """Fail while there is still an answer to give: once bytes are under way, the client only sees a cut."""
    for file in files:
        key = f"{directory}/{file.path}"
        found = artifacts.stat(key).bytes
        if found != file.bytes:
            raise ArtifactError(f"{key} has {found} bytes, {file.bytes} were published")


def _requested_part(request: Request, etag: str, size: int) -> range | None:
    """The one range that is asked for; None for the whole file, also when the header is of another kind."""
    match = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if match is None or match[0] == "bytes=-" or request.headers.get("if-range", etag) != etag:
        return None
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    if first:
        part = range(int(first), min(int(last) + 1, size) if last else size)
    else:
        part = range(max(size - int(last), 0), size)
    if not part:
        detail = f"Got Range {match[0]!r}; the file has {size} bytes."
        raise ApiError("range-not-satisfiable", detail, headers={"Content-Range": f"bytes */{size}"})
    return part


def _names(header: str, etag: str) -> bool:
    """Whether an If-None-Match header names the entity tag."""
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return etag in tags or tags == ["*"]


def _validators(etag: str) -> dict[str, str]:
    return {"ETag": etag, "Cache-Control": "private, no-cache"}


def _attachment(filename: str) -> str:
    return f"attachment; filename*=UTF-8''{quote(filename, safe='')}"


def _tar_head(name: str, size: int, mtime: float) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, int(mtime), 0o644
    return info.tobuf(tarfile.PAX_FORMAT)


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _tar_parts(
    artifacts: Artifacts, directory: str, files: Sequence[FileEntry], heads: Sequence[bytes]
) -> Iterator[bytes]:
    for file, head in zip(files, heads, strict=True):
        yield head
        yield from artifacts.open(f"{directory}/{file.path}", 0, file.bytes)
        yield bytes(_padded(file.bytes) - file.bytes)
    yield bytes(2 * _BLOCK)
