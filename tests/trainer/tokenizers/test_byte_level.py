"""BLOOM's tokenizer from vocab.json and merges.txt."""

import json
import shutil
from pathlib import Path

import pytest

from trainer import load_tokenizer
from trainer.config.problems import DataError

GOLDEN = Path(__file__).parents[2] / "golden" / "bloom_tokenizer"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = Path(shutil.copytree(GOLDEN, tmp_path / "tokenizer"))
    (path / "tokenizer.json").unlink()
    return path


def test_without_other_files_the_special_tokens_are_blooms(directory: Path):
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (directory / name).unlink()
    tokenizer = load_tokenizer(directory)
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (0, 1, 2, 3)
    assert 2 not in tokenizer.encode("</s>")
    assert tokenizer.encode("</s>", allow_special=True) == [2]


def test_merges_may_lack_the_version_line(directory: Path):
    expected = load_tokenizer(directory).encode("The harbour wakes")
    path = directory / "merges.txt"
    path.write_text(path.read_text(encoding="utf-8").split("\n", 1)[1], encoding="utf-8")
    assert load_tokenizer(directory).encode("The harbour wakes") == expected


def test_saving_adds_the_tokenizer_json_that_other_tools_read(directory: Path, tmp_path: Path):
    load_tokenizer(directory).save(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert names >= {"tokenizer.json", "vocab.json", "merges.txt"}
    theirs, ours = (
        json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
        for path in (GOLDEN, tmp_path / "saved")
    )
    assert ours["model"]["vocab"] == theirs["model"]["vocab"]
    assert ours["model"]["merges"] == theirs["model"]["merges"]
    assert ours["pre_tokenizer"] == theirs["pre_tokenizer"]


def test_another_familys_vocabulary_is_refused(directory: Path):
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    with pytest.raises(DataError, match=r"belongs to a GPT2Tokenizer.*Put the tokenizer\.json"):
        load_tokenizer(directory)


def test_missing_merges_are_refused(directory: Path):
    (directory / "merges.txt").unlink()
    with pytest.raises(DataError, match=r"has vocab\.json but no merges\.txt"):
        load_tokenizer(directory)


@pytest.mark.parametrize("content", ['["a"]', '{"a": "b"}', "{"])
def test_a_broken_vocabulary_is_refused_by_name(directory: Path, content: str):
    (directory / "vocab.json").write_text(content)
    with pytest.raises(DataError, match=r"vocab\.json.*is not a tokenizer"):
        load_tokenizer(directory)
