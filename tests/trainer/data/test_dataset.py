from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.training import write_records
from trainer.config.problems import DataError
from trainer.config.records import SftRecord
from trainer.data.dataset import Split, encode_split, split_warnings
from trainer.data.files import read_records
from trainer.data.sft import PlainEncoder
from trainer.tokenizers import Tokenizer


def record(src: str, tgt: str) -> SftRecord:
    return SftRecord((src,), (tgt,), {})


def tokenize_split(
    name: str, records: Sequence[SftRecord], tokenizer: Tokenizer, src_length: int, max_length: int
) -> Split:
    return encode_split(name, records, PlainEncoder(tokenizer, src_length, max_length), max_length)


def test_records_without_room_for_a_target_are_left_out_and_counted(tokenizer: Tokenizer) -> None:
    records = [record("short", "yes"), record("far too long a source to leave any room", "no")]
    split = tokenize_split("train", records, tokenizer, 16, 16)
    assert (len(split.examples), len(split.dropped)) == (1, 1)
    assert all(example.label_tokens for example in split.examples)
    assert "1 of 2 records were left out" in str(next(split_warnings(split, 16)))


def test_answers_that_were_cut_make_one_warning(tokenizer: Tokenizer) -> None:
    records = [record("a", "a long answer of many words")] * 3 + [record("a", "b")]
    split = tokenize_split("train", records, tokenizer, 8, 12)
    (warning,) = split_warnings(split, 12)
    assert split.cut == 3
    assert "3 of 4 answers" in warning.msg


def test_conversations_that_lost_turns_make_one_warning(tokenizer: Tokenizer) -> None:
    long = SftRecord(("a long first question", "b"), ("a long first answer", "c"), {})
    (warning,) = split_warnings(tokenize_split("train", [long], tokenizer, 16, 16), 16)
    assert "1 of 1 conversations lost their earliest turns" in warning.msg


def test_a_split_in_which_everything_fits_has_no_warning(tokenizer: Tokenizer) -> None:
    split = tokenize_split("train", [record("a", "b")], tokenizer, 64, 64)
    assert not list(split_warnings(split, 64))
    assert split.tokens == split.examples[0].length
    assert split.label_tokens == split.examples[0].label_tokens


def test_a_split_with_nothing_to_learn_is_refused_with_the_remedy(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"none of the 2 records .* Raise max_length"):
        tokenize_split("train", [record("far too long a source", "x")] * 2, tokenizer, 8, 8)
    with pytest.raises(DataError, match="no records"):
        tokenize_split("train", [], tokenizer, 8, 8)


def test_the_fingerprint_tells_other_data_and_another_order(tokenizer: Tokenizer) -> None:
    def fingerprint(*records: SftRecord) -> str:
        return tokenize_split("train", records, tokenizer, 64, 64).fingerprint()

    one, two = record("a", "b"), record("a", "c")
    assert fingerprint(one, two) == fingerprint(one, two)
    assert len({fingerprint(one, two), fingerprint(two, one), fingerprint(one), fingerprint(two)}) == 4


def test_files_of_a_split_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_records(tmp_path / "train" / "b.json", [("2", "b")])
    write_records(tmp_path / "train" / "a.json", [("1", "a"), ("1", "a")])
    assert [found.src for found in read_records(tmp_path, "train")] == [("1",), ("1",), ("2",)]


def test_a_broken_line_is_named_by_file_and_number(tmp_path: Path) -> None:
    write_records(tmp_path / "train.json", [("a", "b")])
    with (tmp_path / "train.json").open("a", encoding="utf-8") as file:
        file.write('\n{"src": "a", "tgt": 5}\n')
    with pytest.raises(DataError) as raised:
        list(read_records(tmp_path, "train"))
    assert raised.value.problems[0].loc == ("dataset_name_or_path", "train.json", 3)


def test_a_missing_split_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no dev"):
        list(read_records(tmp_path, "dev"))
