"""What only artifacts in a folder promise."""

import os
import threading
from pathlib import Path

import pytest

from store.artifacts import MANIFEST, LocalArtifacts
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


def read(artifacts: LocalArtifacts, key: str, length: int | None = None) -> bytes:
    return b"".join(artifacts.open(key, 0, length))


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


def test_readiness_tells_when_nothing_can_be_written(artifacts: LocalArtifacts, tmp_path: Path) -> None:
    artifacts.check()
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written"):
        LocalArtifacts(tmp_path / "file").check()


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
