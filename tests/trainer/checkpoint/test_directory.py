import json
import os
import shutil
from pathlib import Path

import pytest

from tests.trainer.checkpoint.processes import write_directory
from trainer.checkpoint.directory import (
    MANIFEST,
    damage,
    remove_directory,
    remove_leftovers,
)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A whole directory with two files, one of them in a folder."""

    def write(directory: Path) -> None:
        (directory / "a.bin").write_bytes(b"0123456789")
        (directory / "inner").mkdir()
        (directory / "inner" / "b.txt").write_text("text")

    write_directory(tmp_path / "checkpoint-1", write)
    return tmp_path / "checkpoint-1"


def test_the_directory_has_its_files_and_a_manifest_of_them(target: Path) -> None:
    files = json.loads((target / MANIFEST).read_text())["files"]
    assert {name: entry["bytes"] for name, entry in files.items()} == {"a.bin": 10, "inner/b.txt": 4}
    assert damage(target) is None


def test_nothing_bears_the_name_before_it_is_whole(tmp_path: Path) -> None:
    def write(directory: Path) -> None:
        (directory / "a.bin").write_bytes(b"x")
        assert not (tmp_path / "checkpoint-1").exists()

    write_directory(tmp_path / "checkpoint-1", write)


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def write(directory: Path) -> None:
        (directory / "a.bin").write_bytes(b"x")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_directory(tmp_path / "checkpoint-1", write)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_replaced(target: Path) -> None:
    def write(directory: Path) -> None:
        (directory / "c.bin").write_bytes(b"new")

    write_directory(target, write)
    assert {path.name for path in target.iterdir()} == {"c.bin", MANIFEST}
    assert damage(target) is None


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.bin", b"", "a.bin has 0 bytes where 10 were written"),
        ("a.bin", b"01234", "a.bin has 5 bytes where 10 were written"),
        ("a.bin", b"0123456780", "the contents of a.bin have changed"),
        ("a.bin", None, "a.bin is missing"),
        (MANIFEST, None, "it has no manifest.json"),
        (MANIFEST, b'{"files": [1', "its manifest.json cannot be read"),
        (MANIFEST, b'{"files": [1]}', "its manifest.json cannot be read"),
        (MANIFEST, b"[]", "its manifest.json cannot be read"),
    ],
)
def test_damage_is_told(target: Path, name: str, content: bytes | None, found: str) -> None:
    (target / name).unlink()
    if content is not None:
        (target / name).write_bytes(content)
    assert found in (damage(target) or "")


def test_contents_are_compared_only_when_asked_for(target: Path) -> None:
    (target / "a.bin").write_bytes(b"9876543210")
    assert damage(target, contents=False) is None


def test_a_manifest_cannot_name_files_outside(target: Path) -> None:
    os.link(target / "a.bin", target.parent / "outside.bin")
    manifest = json.loads((target / MANIFEST).read_text())
    manifest["files"]["../outside.bin"] = manifest["files"]["a.bin"]
    (target / MANIFEST).write_text(json.dumps(manifest))
    assert "cannot be read" in (damage(target) or "")


def test_a_removed_directory_is_gone_without_a_trace(target: Path) -> None:
    remove_directory(target)
    assert list(target.parent.iterdir()) == []


def test_leftovers_of_interrupted_writes_are_removed_and_nothing_else(target: Path) -> None:
    for name in (".checkpoint-2.partial", ".checkpoint-3.removed"):
        (target.parent / name).mkdir()
        (target.parent / name / "model.safetensors").write_bytes(b"half")
    (target.parent / ".config.json.123.tmp").write_bytes(b"half")
    (target.parent / ".hidden").mkdir()
    remove_leftovers(target.parent)
    assert {path.name for path in target.parent.iterdir()} == {"checkpoint-1", ".hidden"}


def test_a_checkpoint_whose_replacement_did_not_come_is_put_back(target: Path) -> None:
    target.rename(target.parent / ".checkpoint-1.replaced")
    (target.parent / ".checkpoint-1.partial").mkdir()
    remove_leftovers(target.parent)
    assert [path.name for path in target.parent.iterdir()] == ["checkpoint-1"]
    assert damage(target) is None


def test_a_checkpoint_that_was_replaced_is_removed(target: Path) -> None:
    shutil.copytree(target, target.parent / ".checkpoint-1.replaced")
    remove_leftovers(target.parent)
    assert [path.name for path in target.parent.iterdir()] == ["checkpoint-1"]


def test_there_is_nothing_to_remove_in_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    remove_leftovers(tmp_path / "nowhere")
