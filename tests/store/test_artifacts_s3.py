"""What only artifacts in a bucket have to bear: a network, a server that goes away, uploads cut off."""

import logging
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.artifacts import MANIFEST, artifacts_for
from store.artifacts import s3 as module
from store.artifacts.s3 import S3Artifacts
from store.errors import ArtifactsUnavailable
from tests.s3 import BUCKET, SECRET, Gateway, S3Server

MIB = 1 << 20


@pytest.fixture
def gateway(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """What lies between the test and the server."""
    monkeypatch.setattr(module, "RETRY_FOR", module.PROBE_RETRY_FOR)
    gateway = Gateway(s3.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{gateway.port}")
    yield gateway
    gateway.close()


@pytest.fixture
def artifacts(gateway: Gateway, s3: S3Server) -> S3Artifacts:
    found = artifacts_for(s3.url())
    assert isinstance(found, S3Artifacts)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small file, then one of three parts."""
    folder = tmp_path / "checkpoint-3"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with (folder / "weights").open("wb") as file:
        for number in range(40):
            file.write(bytes([number]) * MIB)
    return folder


def test_large_files_go_in_parts_and_come_back_whole(
    artifacts: S3Artifacts, folder: Path, tmp_path: Path
) -> None:
    manifest = artifacts.publish_directory(folder, "c")
    assert artifacts.stat("c/weights").bytes == 40 * MIB
    assert artifacts.fetch_directory("c", tmp_path / "copy") == manifest
    assert (tmp_path / "copy" / "weights").read_bytes() == (folder / "weights").read_bytes()


def test_memory_does_not_grow_with_the_file(artifacts: S3Artifacts, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    with (folder / "weights").open("wb") as file:
        file.truncate(256 * MIB)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    artifacts.publish_directory(folder, "c")
    artifacts.fetch_directory("c", tmp_path / "copy")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 160, f"{grown:.0f} MiB for a file of 256 MiB"


def test_a_directory_whose_upload_was_cut_off_is_not_there_until_it_is_published_again(
    artifacts: S3Artifacts, gateway: Gateway, folder: Path, tmp_path: Path
) -> None:
    gateway.shut_after_taking(20 * MIB)
    with pytest.raises(ArtifactsUnavailable, match=rf"'{BUCKET}' cannot be used .*'c/weights'"):
        artifacts.publish_directory(folder, "c")
    gateway.reopen()

    with pytest.raises(FileNotFoundError):
        artifacts.manifest("c")
    with pytest.raises(FileNotFoundError):
        artifacts.fetch_directory("c", tmp_path / "copy")
    (folder / "config.json").rename(folder / "renamed.json")
    manifest = artifacts.publish_directory(folder, "c")
    assert artifacts.fetch_directory("c", tmp_path / "copy") == manifest
    assert artifacts.list("c") == ["c/renamed.json", "c/weights"]


def test_while_a_directory_is_replaced_it_is_not_there(
    artifacts: S3Artifacts, gateway: Gateway, folder: Path
) -> None:
    artifacts.publish_directory(folder, "c")
    (folder / "config.json").write_text('{"new": 1}')
    gateway.shut_after_taking(20 * MIB)
    with pytest.raises(ArtifactsUnavailable):
        artifacts.publish_directory(folder, "c")
    gateway.reopen()
    with pytest.raises(FileNotFoundError):
        artifacts.manifest("c")


def test_a_directory_that_vanishes_while_it_is_published_leaves_nothing(
    artifacts: S3Artifacts, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = artifacts._upload

    def remove_then_upload(local: Path, name: str, key: str) -> object:
        (folder / "weights").unlink(missing_ok=True)
        return upload(local, name, key)

    monkeypatch.setattr(artifacts, "_upload", remove_then_upload)
    with pytest.raises(FileNotFoundError):
        artifacts.publish_directory(folder, "c")
    assert artifacts.list("c") == []


def test_a_stream_that_breaks_goes_on_where_it_was(
    artifacts: S3Artifacts, gateway: Gateway, folder: Path, tmp_path: Path
) -> None:
    artifacts.publish_directory(folder, "c")
    whole = (folder / "weights").read_bytes()
    gateway.leave_after(5 * MIB, times=3)
    assert b"".join(artifacts.open("c/weights")) == whole
    gateway.leave_after(2 * MIB, times=2)
    assert b"".join(artifacts.open("c/weights", 3 * MIB + 1, 9 * MIB)) == whole[3 * MIB + 1 : 12 * MIB + 1]
    gateway.leave_after(3 * MIB, times=2)
    artifacts.fetch_directory("c", tmp_path / "copy")


def test_a_fetch_that_the_server_leaves_leaves_nothing_behind(
    artifacts: S3Artifacts, gateway: Gateway, folder: Path, tmp_path: Path
) -> None:
    artifacts.publish_directory(folder, "c")
    pieces = artifacts.open("c/weights")
    next(pieces)
    gateway.shut()
    with pytest.raises(ArtifactsUnavailable):
        list(pieces)
    with pytest.raises(ArtifactsUnavailable):
        artifacts.fetch_directory("c", tmp_path / "copy")
    assert list(tmp_path.glob("*copy*")) == []


def test_a_server_that_is_away_or_refuses_is_told_in_words_without_secrets(
    artifacts: S3Artifacts, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    elsewhere = S3Artifacts("no-such-bucket", endpoint=f"http://127.0.0.1:{gateway.port}")
    for call in (elsewhere.check, lambda: elsewhere.put_bytes("a", b""), lambda: elsewhere.manifest("a")):
        with pytest.raises(ArtifactsUnavailable, match=r"'no-such-bucket' cannot be used \(NoSuchBucket\)"):
            call()
    gateway.shut()
    for call in (artifacts.check, lambda: artifacts.stat("a"), lambda: artifacts.delete_prefix("a")):
        with pytest.raises(ArtifactsUnavailable, match="no answer") as refusal:
            call()
        assert refusal.value.__cause__ is None
        assert str(gateway.port) not in str(refusal.value)
    assert SECRET not in caplog.text
    assert SECRET not in repr(vars(artifacts))


def test_the_manifest_is_no_key_of_its_own(artifacts: S3Artifacts, folder: Path) -> None:
    artifacts.publish_directory(folder, "c")
    assert not any(MANIFEST in key for key in artifacts.list("c"))
