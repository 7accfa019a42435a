"""A download is gone on with after a cut, and what arrives damaged leaves nothing behind."""

import hashlib
import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from regatta_client import DamagedFileError, Regatta
from tests.cli.scripted_server import Answer, answer, serving

CONTENT = bytes(range(256)) * 4
HASH = hashlib.sha256(CONTENT).hexdigest()


def listing(path: str = "weights/a.bin", content_hash: str = HASH) -> Answer:
    """A checkpoint with one file."""
    file = {"path": path, "bytes": len(CONTENT), "sha256": content_hash, "url": "/file"}
    document: dict[str, Any] = {
        "name": "result",
        "job_id": "j",
        "step": 1,
        "attempt": 1,
        "best": False,
        "metrics": {},
        "bytes": len(CONTENT),
        "files": [file],
        "created_at": "2026-05-04T10:20:30.250Z",
        "links": {},
    }
    return answer(200, json.dumps(document).encode())


def part(start: int, sent: int, status: int) -> Answer:
    """The file from a byte on, of which only `sent` bytes arrive."""

    def send(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(CONTENT) - start))
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(CONTENT[start : start + sent])

    return send


def test_a_cut_file_is_gone_on_with(tmp_path: Path) -> None:
    with (
        serving(listing(), part(0, 100, 200), part(100, len(CONTENT), 206)) as server,
        Regatta(server.url) as client,
    ):
        folder = client.checkpoints.download("j", tmp_path / "result")
    assert (folder / "weights" / "a.bin").read_bytes() == CONTENT
    headers = server.requests[-1][1]
    assert (headers["range"], headers["if-range"]) == ("bytes=100-", f'"{HASH}"')


def test_a_server_that_sends_all_again_is_understood(tmp_path: Path) -> None:
    whole = part(0, len(CONTENT), 200)
    with serving(listing(), part(0, 100, 200), whole) as server, Regatta(server.url) as client:
        folder = client.checkpoints.download("j", tmp_path / "result")
    assert (folder / "weights" / "a.bin").read_bytes() == CONTENT


def test_a_damaged_file_leaves_nothing_behind(tmp_path: Path) -> None:
    whole = part(0, len(CONTENT), 200)
    with (
        serving(listing(content_hash="0" * 64), whole) as server,
        Regatta(server.url) as client,
        pytest.raises(DamagedFileError, match=r"weights/a\.bin arrived damaged"),
    ):
        client.checkpoints.download("j", tmp_path / "result")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../a.bin", "/etc/a.bin", "b/../../a.bin", "..\\a.bin", ""])
def test_no_file_leaves_the_folder(path: str, tmp_path: Path) -> None:
    with (
        serving(listing(path), part(0, len(CONTENT), 200)) as server,
        Regatta(server.url) as client,
        pytest.raises(DamagedFileError, match="outside the folder"),
    ):
        client.checkpoints.download("j", tmp_path / "result")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with (
        serving(listing(), part(0, len(CONTENT), 200)) as server,
        Regatta(server.url) as client,
        pytest.raises(FileExistsError),
    ):
        client.checkpoints.download("j", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
