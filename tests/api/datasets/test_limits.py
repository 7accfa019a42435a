"""A server in a process of its own at the limits of its machine: little memory, a full disk, a sudden end."""

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from api.datasets.workspace import YOUNG_S, upload_folder
from tests.api.datasets.conftest import sft_lines, stored_files
from tests.api.parts import wait_until

LINES = {"content-type": "application/x-ndjson"}
MIB = 1 << 20
UPLOAD_BYTES = 100 * MIB
MOST_MEMORY = 64 * MIB


@dataclass
class Process:
    """A server and where it keeps things."""

    process: subprocess.Popen[bytes]
    data_dir: Path
    client: httpx.Client

    @property
    def peak_memory(self) -> int:
        """The most bytes it ever had in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    def uploading(self) -> list[Path]:
        return list((self.data_dir / "uploads").glob("*/train.json"))


@pytest.fixture
def process(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Process]:
    shutil.copy(migrated_sqlite, tmp_path / "regatta.db")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {"REGATTA_DATA_DIR": str(tmp_path), "REGATTA_API_PORT": str(port)}
    command = [sys.executable, "-m", "cli", "api"]
    with (tmp_path / "api.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            wait_until(lambda: process.poll() is not None or answers(client))
            yield Process(process, tmp_path, client)
    finally:
        process.kill()
        process.wait(10)


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def long_lines(size: int) -> Iterator[bytes]:
    """So many bytes of records that are all different."""
    batch, sent = 0, 0
    while sent < size:
        rows = [{"src": f"{batch} {n} " + "question " * 400, "tgt": "answer " * 400} for n in range(150)]
        piece = "".join(json.dumps(row) + "\n" for row in rows).encode()
        yield piece
        batch, sent = batch + 1, sent + len(piece)


def test_a_large_upload_takes_little_memory(process: Process) -> None:
    assert process.client.post("/datasets", content=sft_lines(), headers=LINES).status_code == 201
    before = process.peak_memory
    answer = process.client.post("/datasets", content=long_lines(UPLOAD_BYTES), headers=LINES)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["bytes"] >= UPLOAD_BYTES
    path = f"/datasets/{made['id']}/records"
    last = process.client.get(path, params={"offset": made["splits"]["train"]["examples"] - 1})
    assert len(last.json()["items"]) == 1
    assert process.peak_memory - before < MOST_MEMORY


def test_a_full_disk_is_told_and_leaves_nothing_behind(process: Process) -> None:
    full = 4 * MIB
    psutil.Process(process.process.pid).rlimit(resource.RLIMIT_FSIZE, (full, full))
    answer = process.client.post("/datasets", content=long_lines(2 * full), headers=LINES)
    assert (answer.status_code, answer.json()["type"]) == (507, "urn:regatta:problem:storage-full")
    assert stored_files(process.data_dir) == set()
    assert process.client.post("/datasets", content=sft_lines(), headers=LINES).status_code == 201


def test_what_a_killed_server_has_left_goes_with_a_later_upload(process: Process) -> None:
    def endless() -> Iterator[bytes]:
        yield from long_lines(3 * MIB)
        wait_until(process.uploading)
        process.process.kill()
        process.process.wait(10)

    with pytest.raises(httpx.TransportError):
        process.client.post("/datasets", content=endless(), headers=LINES)
    (left,) = process.uploading()
    with upload_folder(process.data_dir / "uploads"):
        assert left.exists(), "it may have just been made by another process"
    long_ago = time.time() - 2 * YOUNG_S
    os.utime(left.parent, (long_ago, long_ago))
    with upload_folder(process.data_dir / "uploads") as used:
        os.utime(used, (long_ago, long_ago))
        with upload_folder(process.data_dir / "uploads"):
            assert used.exists()
        assert not left.parent.exists()
    assert list((process.data_dir / "uploads").iterdir()) == []
