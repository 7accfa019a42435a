"""What all artifacts promise, whether a folder or an S3 bucket has them."""

import hashlib
import os
from pathlib import Path

import pytest

from store.artifacts import CHUNK, Artifacts, FileEntry, LocalArtifacts, Manifest, artifacts_for, checked_key
from store.errors import ArtifactError


@pytest.fixture(params=["folder", "s3"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    """Empty artifacts; the test runs once in a folder and once in a bucket."""
    if request.param == "folder":
        return LocalArtifacts(tmp_path / "artifacts")
    return artifacts_for(request.getfixturevalue("s3").url())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "output" / "checkpoint-3"
    (folder / "optimizer").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights" * 1000)
    (folder / "config.json").write_text("{}")
    (folder / "optimizer" / "part 0.bin").write_bytes(b"")
    return folder


def read(artifacts: Artifacts, key: str, start: int = 0, length: int | None = None) -> bytes:
    return b"".join(artifacts.open(key, start, length))


def test_a_published_directory_is_described_and_readable_file_by_file(
    artifacts: Artifacts, checkpoint: Path
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


def test_links_and_special_files_are_not_published_and_leave_nothing_behind(
    artifacts: Artifacts, checkpoint: Path, tmp_path: Path
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


def test_fetching_gives_an_independent_complete_copy(
    artifacts: Artifacts, checkpoint: Path, tmp_path: Path
) -> None:
    manifest = artifacts.publish_directory(checkpoint, "c")
    copy = tmp_path / "restored" / "checkpoint-3"
    assert artifacts.fetch_directory("c", copy) == manifest
    assert (copy / "model.safetensors").read_bytes() == b"weights" * 1000
    (copy / "model.safetensors").write_bytes(b"changed")
    assert read(artifacts, "c/model.safetensors") == b"weights" * 1000
    assert sorted(path.name for path in copy.parent.iterdir()) == ["checkpoint-3"]


def test_ranges(artifacts: Artifacts) -> None:
    data = bytes(range(256)) * (CHUNK // 128)  # two pieces
    artifacts.put_bytes("f", data)
    assert read(artifacts, "f", 10, 5) == data[10:15]
    assert read(artifacts, "f", CHUNK - 3, 6) == data[CHUNK - 3 : CHUNK + 3]
    assert read(artifacts, "f", len(data) - 2) == data[-2:]
    assert read(artifacts, "f", len(data), 5) == b""
    assert read(artifacts, "f", 0, 0) == b""
    assert all(len(piece) <= 2 * CHUNK for piece in artifacts.open("f"))


def test_objects_are_replaced_and_deleted(artifacts: Artifacts) -> None:
    artifacts.put_bytes("a/b", b"1")
    artifacts.put_bytes("a/b", b"22")
    assert read(artifacts, "a/b") == b"22"
    artifacts.put_bytes("a/c", b"3")
    artifacts.delete_prefix("a/b")
    assert artifacts.list("a") == ["a/c"]
    artifacts.delete_prefix("a")
    artifacts.delete_prefix("a")
    assert artifacts.list("a") == []


def test_missing_objects_are_not_found_before_the_first_byte(artifacts: Artifacts) -> None:
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
def test_keys_that_lead_elsewhere_are_refused_by_every_call(
    artifacts: Artifacts, key: str, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match="is not an artifact key"):
        checked_key(key)
    for call in (artifacts.open, artifacts.stat, artifacts.list, artifacts.delete_prefix, artifacts.manifest):
        with pytest.raises(ArtifactError):
            call(key)
    with pytest.raises(ArtifactError):
        artifacts.put_bytes(key, b"")
    with pytest.raises(ArtifactError):
        artifacts.publish_directory(tmp_path, key)


def test_publishing_again_replaces_the_directory(artifacts: Artifacts, checkpoint: Path) -> None:
    artifacts.publish_directory(checkpoint, "c")
    (checkpoint / "config.json").unlink()
    (checkpoint / "optimizer" / "part 0.bin").unlink()
    (checkpoint / "config.json").write_text('{"new": 1}')
    manifest = artifacts.publish_directory(checkpoint, "c")
    assert artifacts.manifest("c") == manifest
    assert read(artifacts, "c/config.json") == b'{"new": 1}'
    assert artifacts.list("c") == ["c/config.json", "c/model.safetensors"]


def test_a_damaged_file_is_not_fetched(artifacts: Artifacts, checkpoint: Path, tmp_path: Path) -> None:
    artifacts.publish_directory(checkpoint, "c")
    artifacts.put_bytes("c/model.safetensors", b"weights" * 999 + b"weightx")
    with pytest.raises(ArtifactError, match=r"c/model\.safetensors is damaged"):
        artifacts.fetch_directory("c", tmp_path / "copy")
    artifacts.put_bytes("c/model.safetensors", b"weights" * 999)
    with pytest.raises(ArtifactError, match=r"c/model\.safetensors is damaged"):
        artifacts.fetch_directory("c", tmp_path / "copy")
    assert list(tmp_path.glob("*copy*")) == []


@pytest.mark.parametrize("name", ["100%.txt", "a#b?c=d&e", "ä ö+[1]{2}", "a%20b", "~x", ".hidden", "a..b"])
def test_file_names_are_kept_as_they_are(artifacts: Artifacts, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "output"
    folder.mkdir()
    (folder / name).write_text("text")
    assert [entry.path for entry in artifacts.publish_directory(folder, "c").files] == [name]
    assert artifacts.list("c") == [f"c/{name}"]
    artifacts.fetch_directory("c", tmp_path / "copy")
    assert (tmp_path / "copy" / name).read_text() == "text"


def test_a_folder_is_deleted_with_all_directories_and_nothing_beside_it(
    artifacts: Artifacts, checkpoint: Path
) -> None:
    for key in ("jobs/1/a", "jobs/1/b", "jobs/10/a"):
        artifacts.publish_directory(checkpoint, key)
    artifacts.put_bytes("jobs/1/logs/1.jsonl", b"")
    artifacts.delete_prefix("jobs/1")
    assert artifacts.list("jobs/1") == []
    for key in ("jobs/1/a", "jobs/1/b"):
        with pytest.raises(FileNotFoundError):
            artifacts.manifest(key)
    assert artifacts.manifest("jobs/10/a").bytes == 7002


def test_readiness(artifacts: Artifacts) -> None:
    artifacts.check()
    artifacts.put_bytes("f", b"1")
    assert artifacts.list("f") == []


def test_a_location_is_found_by_its_url_or_refused_with_the_remedy(tmp_path: Path) -> None:
    odd = tmp_path / "with space"
    found = artifacts_for(odd.as_uri())
    assert isinstance(found, LocalArtifacts)
    assert found.root == odd
    for url in ("gs://bucket/x", "relative", "file://host/x", "", "s3://", "s3:///x", "s3://key:secret@b/x"):
        with pytest.raises(ArtifactError, match=r"expected file:///.*REGATTA_ARTIFACTS_URL") as refusal:
            artifacts_for(url)
        assert "secret" not in str(refusal.value)


def test_a_directory_of_parts_is_there_once_it_is_complete(
    artifacts: Artifacts, checkpoint: Path, tmp_path: Path
) -> None:
    other, key = tmp_path / "other", "jobs/1/checkpoint-3"
    other.mkdir()
    (other / "more.bin").write_bytes(b"more")
    files = [*artifacts.publish_part(checkpoint, key), FileEntry("more.bin", 4, "none")]
    with pytest.raises(FileNotFoundError):
        artifacts.manifest(key)
    with pytest.raises(ArtifactError, match=r"more\.bin, which another host has stored, is not there"):
        artifacts.complete(key, Manifest(tuple(files)))
    for _ in range(2):
        files[-1:] = artifacts.publish_part(other, key)
    artifacts.complete(key, Manifest(tuple(files)))
    fetched = tmp_path / "fetched"
    assert artifacts.fetch_directory(key, fetched) == artifacts.manifest(key) == Manifest(tuple(files))
    assert (fetched / "more.bin").read_bytes() == b"more"
    assert (fetched / "config.json").read_text() == "{}"
