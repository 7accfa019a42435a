"""What is remembered of files, and for how long."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.config.preflight import unchanged
from trainer.config.preflight.unchanged import folder_while_unchanged, while_unchanged


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as settled at once."""
    monkeypatch.setattr(unchanged, "SETTLED_S", -60.0)
    file = tmp_path / "train.json"
    file.write_text("one")
    return file


@pytest.fixture
def read(file: Path) -> Callable[[], tuple[str, int]]:
    """Reads the file, and tells how often that was done."""
    reads = 0

    def text_and_count() -> tuple[str, int]:
        nonlocal reads
        reads += 1
        return file.read_text(), reads

    return lambda: while_unchanged("text", [file], text_and_count)


def test_a_file_that_stays_the_same_is_read_once(read: Callable[[], object]) -> None:
    assert [read(), read()] == [("one", 1), ("one", 1)]


def test_another_content_of_the_same_size_and_age_is_noticed(file: Path, read: Callable[[], object]) -> None:
    before = file.stat()
    assert read() == ("one", 1)
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read() == ("two", 2)
    other = file.with_name("other")
    other.write_text("six")
    other.replace(file)
    assert read() == ("six", 3)


def test_a_file_that_has_only_just_changed_is_read_again(
    read: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "SETTLED_S", 60.0)
    assert [read(), read()] == [("one", 1), ("one", 2)]


def test_a_file_that_goes_is_missed(file: Path, read: Callable[[], object]) -> None:
    read()
    file.unlink()
    with pytest.raises(FileNotFoundError):
        read()


def test_only_so_much_is_remembered(file: Path) -> None:
    for number in range(unchanged.MOST + 5):
        while_unchanged(("number", number), [file], lambda number=number: number)
    assert len(unchanged._known) == unchanged.MOST


@pytest.fixture
def list_folder(file: Path) -> Callable[[], tuple[list[str], int]]:
    """Lists the folder of the file, and tells how often that was done."""
    reads = 0

    def names_and_count() -> tuple[list[str], int]:
        nonlocal reads
        reads += 1
        return sorted(entry.name for entry in file.parent.iterdir()), reads

    return lambda: folder_while_unchanged("names", file.parent, names_and_count)


def test_a_folder_that_stays_the_same_is_looked_at_once(list_folder: Callable[[], object]) -> None:
    assert [list_folder(), list_folder()] == [(["train.json"], 1), (["train.json"], 1)]


def test_every_change_in_a_folder_is_noticed(
    file: Path, list_folder: Callable[[], tuple[list[str], int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    count = list_folder()[1]
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "target"
    elsewhere.write_text("one")
    link = file.with_name("link")
    for change in (
        lambda: file.write_text("two"),
        lambda: link.symlink_to(elsewhere),
        lambda: elsewhere.write_text("other"),
        lambda: (link.unlink(), link.symlink_to(file)),
        lambda: file.with_name("new").touch(),
        lambda: file.with_name("new").unlink(),
        lambda: elsewhere.chmod(0o600) or link.unlink(),
    ):
        change()
        assert list_folder()[1] == count + 1
        assert list_folder()[1] == count + 1
        count += 1


def test_a_folder_with_a_link_that_leads_nowhere_is_looked_at_each_time(
    file: Path, list_folder: Callable[[], tuple[list[str], int]]
) -> None:
    file.with_name("link").symlink_to(file.with_name("gone"))
    assert list_folder()[1] + 1 == list_folder()[1]
