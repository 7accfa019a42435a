"""Artifacts in a folder."""

import hashlib
import os
import threading
from pathlib import Path

import pytest

from store.artifacts import CHUNK, MANIFEST, LocalArtifacts, artifacts_for, checked_key
from store.errors import ArtifactError


@pytest.fixture
def artifacts(tmp_path: Path) -> LocalArtifacts:
    return LocalArtifacts(tmp_path / "artifacts")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "output" / "checkpoint-3"
    (folder / "optimizer").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights" * 1000)
    (folder / "config.json").write_text("{}")
    (folder / "optimizer" / "part 0.bin").write_bytes(b"")
    return folder


def read(artifacts: LocalArtifacts, key: str, start: int = 0, length: int | None = None) -> bytes:
    return b"".join(artifacts.open(key, start, length))


def test_a_published_directory_is_described_and_readable_file_by_file(
    artifacts: LocalArtifacts, checkpoint: Path
) -> None:
    manifest = artifacts.publish_directory(checkpoint, "jobs/1/checkpoint-3")

    assert [entry.path for entry in manifest.files] == [
        "config.json",
        "model.safetensors",
        "optimizer/part 0.bin",
    ]
    assert manifest.bytes == 7002
    assert manifest.files[1].sha256 == hashlib.sha256(b"weights" * 1000).hexdigest()
    assert artifacts.manifest("jobs/1/checkpoint-3") == manifest
    assert read(artifacts, "jobs/1/checkpoint-3/model.safetensors") == b"weights" * 1000
    assert artifacts.stat("jobs/1/checkpoint-3/config.json").bytes == 2
    assert artifacts.list("jobs/1") == [f"jobs/1/checkpoint-3/{entry.path}" for entry in manifest.files]


def test_publishing_makes_no_second_copy_and_survives_the_original(
    artifacts: LocalArtifacts, checkpoint: Path
) -> None:
    artifacts.publish_directory(checkpoint, "c")
    weights = checkpoint / "model.safetensors"
    assert (artifacts.root / "c" / "model.safetensors").samefile(weights)
    weights.unlink()
    assert read(artifacts, "c/model.safetensors", length=7) == b"weights"


def test_files_on_another_device_are_copied(artifacts: LocalArtifacts, tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second device here")
    folder = memory / f"regatta-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "a").write_text("text")
        artifacts.publish_directory(folder, "c")
    finally:
        (folder / "a").unlink()
        folder.rmdir()
    assert read(artifacts, "c/a") == b"text"


def test_publishing_again_replaces_and_publishing_the_same_again_changes_nothing(
    artifacts: LocalArtifacts, checkpoint: Path
) -> None:
    artifacts.publish_directory(checkpoint, "c")
    inode = (artifacts.root / "c").stat().st_ino
    artifacts.publish_directory(checkpoint, "c")
    assert (artifacts.root / "c").stat().st_ino == inode
    (checkpoint / "config.json").unlink()
    (checkpoint / "config.json").write_text('{"new": 1}')
    artifacts.publish_directory(checkpoint, "c")
    assert read(artifacts, "c/config.json") == b'{"new": 1}'
    assert list((artifacts.root / ".tmp").iterdir()) == []


def test_links_and_special_files_are_not_published_and_leave_nothing_behind(
    artifacts: LocalArtifacts, checkpoint: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for make in (
        lambda path: path.symlink_to(secret),
        lambda path: path.symlink_to(tmp_path, target_is_directory=True),
        os.mkfifo,
    ):
        odd = checkpoint / "odd"
        make(odd)
        with pytest.raises(ArtifactError, match="odd is a link or a special file"):
            artifacts.publish_directory(checkpoint, "c")
        odd.unlink()
    with pytest.raises(ArtifactError, match="is not a directory"):
        artifacts.publish_directory(secret, "c")
    with pytest.raises(FileNotFoundError):
        artifacts.manifest("c")
    assert artifacts.list("c") == []


def test_a_directory_appears_complete(artifacts: LocalArtifacts, checkpoint: Path) -> None:
    complete = {"config.json", "model.safetensors", "optimizer", MANIFEST}
    done = threading.Event()
    seen: dict[str, set[str]] = {}

    def watch() -> None:
        while not done.is_set():
            for folder in artifacts.root.glob("c*"):
                seen.setdefault(folder.name, {path.name for path in folder.iterdir()})

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(50):
        artifacts.publish_directory(checkpoint, f"c{number}")
    done.set()
    watcher.join(30)
    assert seen
    assert [names for names in seen.values() if names != complete] == []


def test_fetching_gives_an_independent_complete_copy(
    artifacts: LocalArtifacts, checkpoint: Path, tmp_path: Path
) -> None:
    manifest = artifacts.publish_directory(checkpoint, "c")
    copy = tmp_path / "restored" / "checkpoint-3"
    assert artifacts.fetch_directory("c", copy) == manifest
    assert (copy / "model.safetensors").read_bytes() == b"weights" * 1000
    assert not (copy / "model.safetensors").samefile(artifacts.root / "c" / "model.safetensors")
    assert sorted(path.name for path in copy.parent.iterdir()) == ["checkpoint-3"]


def test_a_damaged_file_is_not_fetched(artifacts: LocalArtifacts, checkpoint: Path, tmp_path: Path) -> None:
    artifacts.publish_directory(checkpoint, "c")
    (artifacts.root / "c" / "model.safetensors").write_bytes(b"weights" * 999 + b"weightx")
    with pytest.raises(ArtifactError, match=r"c/model\.safetensors is damaged"):
        artifacts.fetch_directory("c", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_ranges(artifacts: LocalArtifacts) -> None:
    data = bytes(range(256)) * (CHUNK // 128)  # two pieces
    artifacts.put_bytes("f", data)
    assert read(artifacts, "f", 10, 5) == data[10:15]
    assert read(artifacts, "f", CHUNK - 3, 6) == data[CHUNK - 3 : CHUNK + 3]
    assert read(artifacts, "f", len(data) - 2) == data[-2:]
    assert read(artifacts, "f", len(data), 5) == b""
    assert read(artifacts, "f", 0, 0) == b""
    assert [len(piece) for piece in artifacts.open("f")] == [CHUNK, CHUNK]


def test_objects_are_replaced_and_deleted(artifacts: LocalArtifacts) -> None:
    artifacts.put_bytes("a/b", b"1")
    artifacts.put_bytes("a/b", b"22")
    assert read(artifacts, "a/b") == b"22"
    artifacts.put_bytes("a/c", b"3")
    artifacts.delete_prefix("a/b")
    assert artifacts.list("a") == ["a/c"]
    artifacts.delete_prefix("a")
    artifacts.delete_prefix("a")
    assert artifacts.list("a") == []


def test_missing_objects_are_not_found_before_the_first_byte(artifacts: LocalArtifacts) -> None:
    artifacts.put_bytes("folder/f", b"")
    for key in ("nothing", "folder/g"):
        with pytest.raises(FileNotFoundError):
            artifacts.open(key)
        with pytest.raises(FileNotFoundError):
            artifacts.stat(key)
        with pytest.raises(FileNotFoundError):
            artifacts.manifest(key)
    with pytest.raises(FileNotFoundError):
        artifacts.stat("folder")


@pytest.mark.parametrize(
    "key",
    [
        *("", "/etc/passwd", "../x", "a/../../x", "a/..", "./a", "a//b", "a/"),
        *("a\\b", "a\x00b", "a\nb", "x" * 256, "/".join(["x"] * 600), ".tmp/x", "c/.manifest.json"),
    ],
)
def test_keys_that_lead_elsewhere_are_refused_by_every_call(artifacts: LocalArtifacts, key: str) -> None:
    with pytest.raises(ArtifactError, match="is not an artifact key"):
        checked_key(key)
    for call in (artifacts.open, artifacts.stat, artifacts.list, artifacts.delete_prefix, artifacts.manifest):
        with pytest.raises(ArtifactError):
            call(key)
    with pytest.raises(ArtifactError):
        artifacts.put_bytes(key, b"")
    with pytest.raises(ArtifactError):
        artifacts.publish_directory(artifacts.root, key)


def test_links_below_the_root_lead_nowhere_else(artifacts: LocalArtifacts, tmp_path: Path) -> None:
    artifacts.put_bytes("a/file", b"")
    (tmp_path / "secret").write_text("secret")
    (artifacts.root / "a" / "link").symlink_to(tmp_path / "secret")
    (artifacts.root / "out").symlink_to(tmp_path)
    for key in ("a/link", "out/secret"):
        with pytest.raises(ArtifactError, match="leads out of the artifacts"):
            artifacts.open(key)
    with pytest.raises(ArtifactError, match="leads out"):
        artifacts.delete_prefix("out/secret")
    assert (tmp_path / "secret").exists()


def test_a_location_is_found_by_its_url_or_refused_with_the_remedy(tmp_path: Path) -> None:
    odd = tmp_path / "with space"
    found = artifacts_for(odd.as_uri())
    assert isinstance(found, LocalArtifacts)
    assert found.root == odd
    for url in ("s3://bucket/x", "relative", "file://host/x", ""):
        with pytest.raises(ArtifactError, match=r"expected file:///<absolute folder>.*REGATTA_ARTIFACTS_URL"):
            artifacts_for(url)


def test_readiness_tells_when_nothing_can_be_written(artifacts: LocalArtifacts, tmp_path: Path) -> None:
    artifacts.check()
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written"):
        LocalArtifacts(tmp_path / "file").check()
