import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.archive import store_archive
from cli.errors import CliError

CONTENT = {"config.json": b"{}", "nested/model.safetensors": bytes(range(256)) * 9000}


def tar_of(content: dict[str, bytes], *extra: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(name if name.startswith("/") else f"result/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in extra:
            archive.addfile(member)
    return buffer.getvalue()


def manifest(content: dict[str, bytes]) -> list[dict]:
    return [
        {"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in content.items()
    ]


def chunks(data: bytes, size: int = 7001) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def test_the_files_arrive_in_a_new_directory_and_every_byte_is_reported(tmp_path: Path) -> None:
    target, counted = tmp_path / "deep" / "model", []
    store_archive(chunks(tar_of(CONTENT)), manifest(CONTENT), target, counted.append)
    stored = {
        str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()
    }
    assert stored == CONTENT
    assert sum(counted) == sum(map(len, CONTENT.values()))


def test_an_empty_directory_is_a_place_too(tmp_path: Path) -> None:
    store_archive(chunks(tar_of(CONTENT)), manifest(CONTENT), tmp_path / "out", lambda count: None)
    empty = tmp_path / "empty"
    empty.mkdir()
    store_archive(chunks(tar_of(CONTENT)), manifest(CONTENT), empty)
    assert (empty / "config.json").read_bytes() == b"{}"


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/../../../evil"])
def test_a_path_that_leaves_the_target_stores_nothing(tmp_path: Path, name: str) -> None:
    content = CONTENT | {name: b"x"}
    with pytest.raises(CliError, match="not a plain file inside it"):
        store_archive(chunks(tar_of(content)), manifest(content), tmp_path / "out")
    assert list(tmp_path.rglob("*")) == []


def test_a_link_stores_nothing(tmp_path: Path) -> None:
    data = tar_of(CONTENT, link("result/out", "/etc"))
    with pytest.raises(CliError, match="not a plain file inside it"):
        store_archive(chunks(data), manifest(CONTENT), tmp_path / "target")
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("kept", [0.2, 0.9])
def test_an_archive_that_was_cut_stores_nothing(tmp_path: Path, kept: float) -> None:
    data = tar_of(CONTENT)
    with pytest.raises(CliError, match=r"broken or was cut|lacks"):
        store_archive(chunks(data[: int(len(data) * kept)]), manifest(CONTENT), tmp_path / "out")
    assert list(tmp_path.rglob("*")) == []


def test_a_file_that_is_not_the_listed_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"config\.json arrived damaged"):
        store_archive(chunks(tar_of(CONTENT | {"config.json": b"[]"})), manifest(CONTENT), tmp_path / "out")


def test_a_file_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="holds extra"):
        store_archive(chunks(tar_of(CONTENT | {"extra": b""})), manifest(CONTENT), tmp_path / "out")


def test_a_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(CliError, match="is not an empty directory"):
        store_archive(chunks(tar_of(CONTENT)), manifest(CONTENT), tmp_path)
    assert (tmp_path / "kept").read_text() == "mine"
