import json
from pathlib import Path

import pytest

from trainer import load_model, load_tokenizer
from trainer.config.problems import ConfigError, DataError
from trainer.tools.tiny_model import build_tiny_model


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


FAMILIES = pytest.mark.parametrize("family", ["bloom", "gemma"])


@pytest.mark.parametrize(("family", "tokenizer"), [("gemma", "tokenizer.model"), ("bloom", "tokenizer.json")])
def test_it_has_every_file_of_a_hugging_face_model(family: str, tokenizer: str, tmp_path: Path):
    directory = build_tiny_model(family, tmp_path / "tiny")
    assert contents(directory).keys() == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        tokenizer,
        "tokenizer_config.json",
    }


@FAMILIES
def test_the_same_seed_gives_the_same_bytes(family: str, tmp_path: Path):
    one, two = (build_tiny_model(family, tmp_path / name, seed=5) for name in ("one", "two"))
    assert contents(one) == contents(two)


@FAMILIES
def test_another_seed_gives_other_weights_and_the_same_tokenizer(family: str, tmp_path: Path):
    one, two = (contents(build_tiny_model(family, tmp_path / str(seed), seed=seed)) for seed in (1, 2))
    assert {name for name in one if one[name] != two[name]} == {"model.safetensors"}


@pytest.mark.parametrize(
    ("family", "pad", "eos", "bos", "unk"), [("gemma", 0, 1, 2, 3), ("bloom", 3, 2, 1, 0)]
)
def test_model_and_tokenizer_fit_together(
    family: str, pad: int, eos: int, bos: int, unk: int, tmp_path: Path
):
    directory = build_tiny_model(family, tmp_path)
    model, tokenizer = load_model(directory), load_tokenizer(directory)
    assert model.config.vocab_size == tokenizer.vocab_size == 1024
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.bos_id, tokenizer.unk_id) == (pad, eos, bos, unk)
    config = model.config
    assert (config.pad_token_id, config.eos_token_id, config.bos_token_id) == (pad, eos, bos)
    assert json.loads((directory / "generation_config.json").read_text())["eos_token_id"] == eos


def test_the_tokenizer_has_the_habits_of_gemmas(tmp_path: Path):
    tokenizer = load_tokenizer(build_tiny_model("gemma", tmp_path))
    assert len(tokenizer.encode("1911", add_special_tokens=False)) == 4
    assert tokenizer.decode(tokenizer.encode("  你好\n")) == "  你好\n"
    assert tokenizer.encode("the", add_special_tokens=False) != tokenizer.encode(
        " the", add_special_tokens=False
    )


def test_a_tokenizer_of_bytes_has_the_habits_of_blooms(tmp_path: Path):
    tokenizer = load_tokenizer(build_tiny_model("bloom", tmp_path))
    text = "  The harbour,\twakes. \n\n \U0001f642 e\u0301 你好\x00"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.unk_id not in tokenizer.encode(text)
    assert not {tokenizer.bos_id, tokenizer.eos_id} & set(tokenizer.encode("a text"))
    assert len(tokenizer.encode(" harbour")) < len(" harbour")
    assert tokenizer.padding_side == "left"


@FAMILIES
def test_sizes_can_be_chosen(family: str, tmp_path: Path):
    directory = build_tiny_model(family, tmp_path, hidden_size=32, num_hidden_layers=1, vocab_size=400)
    config = load_model(directory).config
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (32, 1, 400)


def test_the_tokenizer_learns_from_a_given_text(tmp_path: Path):
    text = tmp_path / "text.txt"
    text.write_text("zyzzyva zyzzyva zyzzyva\n" * 20)
    tokenizer = load_tokenizer(build_tiny_model("gemma", tmp_path / "tiny", text=text, vocab_size=300))
    assert len(tokenizer.encode("zyzzyva", add_special_tokens=False)) == 1


def test_what_is_not_known_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="family: got 'bert', expected one of: 'gemma', 'bloom'"):
        build_tiny_model("bert", tmp_path)
    with pytest.raises(ConfigError, match="hidden: is not a field"):
        build_tiny_model("gemma", tmp_path, hidden=3)
    with pytest.raises(ConfigError, match="head_dim: is not a field of BloomConfig"):
        build_tiny_model("bloom", tmp_path, head_dim=8)
    for family in ("gemma", "bloom"):
        with pytest.raises(ConfigError, match="vocab_size: got 100"):
            build_tiny_model(family, tmp_path, vocab_size=100)
    with pytest.raises(DataError, match="num_key_value_heads"):
        build_tiny_model("gemma", tmp_path, num_key_value_heads=3)
