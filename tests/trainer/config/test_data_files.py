import gzip
from pathlib import Path

import pytest

from trainer.config import DataError
from trainer.config.data_files import find_data_files, read_lines


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".json.gz", ".jsonl.gz"])
def test_a_split_is_the_file_of_its_name(tmp_path: Path, suffix: str) -> None:
    touch(tmp_path / f"train{suffix}", tmp_path / "test.json", tmp_path / "training.json")
    assert find_data_files(tmp_path) == {"train": (tmp_path / f"train{suffix}",), "dev": ()}


def test_a_split_without_a_file_is_its_folder_in_order_of_names(tmp_path: Path) -> None:
    touch(*(tmp_path / "train" / name for name in ("b.json", "a.jsonl", "notes.txt")), tmp_path / "dev.json")
    (tmp_path / "train" / "c.json").mkdir()
    assert find_data_files(tmp_path) == {
        "train": (tmp_path / "train" / "a.jsonl", tmp_path / "train" / "b.json"),
        "dev": (tmp_path / "dev.json",),
    }


def test_a_file_wins_over_a_folder(tmp_path: Path) -> None:
    touch(tmp_path / "train" / "a.json", tmp_path / "train.json")
    assert find_data_files(tmp_path)["train"] == (tmp_path / "train.json",)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    touch(tmp_path / "dev.json", tmp_path / "dev.jsonl.gz")
    with pytest.raises(DataError, match=r"has dev\.json and dev\.jsonl\.gz, expected one of them"):
        find_data_files(tmp_path)


def test_lines_are_numbered_and_blank_ones_left_out(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n  \n{"b": 2}')
    assert list(read_lines(path)) == [(1, b'{"a": 1}\r\n'), (4, b'{"b": 2}')]


def test_gzip_files_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}\n{}\n"))
    assert list(read_lines(path)) == [(1, b"{}\n"), (2, b"{}\n")]


@pytest.mark.parametrize("content", [gzip.compress(b"{}\n" * 9999, mtime=0)[:-20], b"not gzip"])
def test_a_broken_gzip_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.json.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="it cannot be unpacked"):
        list(read_lines(path))


@pytest.mark.parametrize("content", [b'[{"src": 1}]', b"  [\n", b"\xef\xbb\xbf["])
def test_a_json_array_is_told_apart_from_json_lines(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"one JSON array, expected JSON lines .*jq"):
        list(read_lines(path))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.config.data_files.LONGEST_LINE", 100)
    path = tmp_path / "train.json"
    path.write_bytes(b"{}\n" + b"x" * 1000)
    with pytest.raises(DataError, match="line 2 is longer"):
        list(read_lines(path))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        list(read_lines(tmp_path / "train.json"))


def test_a_gzip_file_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.json.gz"
    line = b" " * (8 * 1024 * 1024) + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(40):
            file.write(line)
    with pytest.raises(DataError, match=r"it unpacks to more than 200 times its size"):
        list(read_lines(path))


def test_a_gzip_file_of_ordinary_text_may_unpack_to_much_more(tmp_path: Path) -> None:
    path = tmp_path / "train.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(1000):
            file.write(b'{"src": "a", "tgt": "b"}' + b" " * 8192 + b"\n")
    assert len(list(read_lines(path))) == 1000
