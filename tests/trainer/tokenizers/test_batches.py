"""Texts as padded arrays, cut to a length, and what cannot be encoded."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from trainer import load_tokenizer
from trainer.config.problems import DataError
from trainer.tokenizers import Tokenizer

GOLDEN = Path(__file__).parents[2] / "golden"
TEXTS = ["The boat", "", "The harbour wakes é🙂"]


@pytest.fixture(params=["gemma_tokenizer", "bloom_tokenizer"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / "tokenizer"))


@pytest.fixture
def tokenizer(directory: Path) -> Tokenizer:
    return load_tokenizer(directory)


class TestPadding:
    @pytest.mark.parametrize("side", ["left", "right", None])
    def test_rows_are_padded_to_the_longest(self, tokenizer: Tokenizer, side: str | None):
        batch = tokenizer(TEXTS, padding_side=side)
        ids = [tokenizer.encode(text) for text in TEXTS]
        assert [encoding.ids for encoding in batch.encodings] == ids
        longest = max(map(len, ids))
        assert batch.input_ids.shape == batch.attention_mask.shape == (3, longest)
        for row, mask, real in zip(batch.input_ids, batch.attention_mask, ids, strict=True):
            padding = [tokenizer.pad_id] * (longest - len(real))
            assert row.tolist() == ([*real, *padding] if side == "right" else [*padding, *real])
            zeros = [0] * len(padding)
            ones = [1] * len(real)
            assert mask.tolist() == ([*ones, *zeros] if side == "right" else [*zeros, *ones])

    def test_no_texts_make_an_empty_array(self, tokenizer: Tokenizer):
        assert tokenizer([]).input_ids.shape == (0, 0)

    def test_without_a_padding_token_texts_must_be_alike(self, tokenizer: Tokenizer):
        tokenizer.pad_id = None
        assert tokenizer(["boat", "boat"]).attention_mask.all()
        with pytest.raises(DataError, match=r"no padding token.*pad_token"):
            tokenizer(TEXTS)


class TestTruncation:
    @pytest.mark.parametrize("side", ["left", "right"])
    def test_the_text_loses_tokens_and_the_tokens_around_it_stay(self, directory: Path, side: str):
        config = json.loads((directory / "tokenizer_config.json").read_text())
        config |= {"add_bos_token": True, "add_eos_token": True}
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = load_tokenizer(directory)
        whole = tokenizer.encode_with_offsets(TEXTS[2])
        for length in range(2, len(whole.ids) + 2):
            (cut,) = tokenizer([TEXTS[2]], max_length=length, truncation_side=side).encodings
            inner = whole.ids[1:-1], whole.offsets[1:-1]
            room = min(length, len(whole.ids)) - 2
            part = slice(0, room) if side == "right" else slice(len(inner[0]) - room, None)
            assert cut.ids == [tokenizer.bos_id, *inner[0][part], tokenizer.eos_id]
            assert cut.offsets == [(0, 0), *inner[1][part], (0, 0)]

    def test_a_length_without_room_for_bos_is_refused(self):
        tokenizer = load_tokenizer(GOLDEN / "gemma_tokenizer")
        with pytest.raises(ValueError, match="max_length: got 0, expected at least 1"):
            tokenizer(["boat"], max_length=0)

    @pytest.mark.parametrize("name", ["truncation_side", "padding_side"])
    def test_another_side_is_refused_by_name(self, tokenizer: Tokenizer, name: str):
        sides: dict[str, Any] = {name: "top"}
        with pytest.raises(ValueError, match=f"{name}: got 'top', expected 'left' or 'right'"):
            tokenizer(TEXTS, **sides)


class TestPlaces:
    def test_a_token_is_where_its_characters_are(self, tokenizer: Tokenizer):
        text = "A boat 你\n\tz"
        encoding = tokenizer.encode_with_offsets(text, add_special_tokens=False)
        for number, (first, end) in zip(encoding.ids, encoding.offsets, strict=True):
            part = tokenizer.decode([number])
            assert part == text[first:end] or "\ufffd" in part

    def test_special_tokens_that_were_read_have_their_place(self, tokenizer: Tokenizer):
        token = "<eos>" if tokenizer.add_bos else "</s>"
        encoding = tokenizer.encode_with_offsets(f"aé{token}b", add_special_tokens=False, allow_special=True)
        assert tokenizer.eos_id is not None
        place = encoding.ids.index(tokenizer.eos_id)
        assert encoding.offsets[place] == (2, 2 + len(token))


@pytest.mark.parametrize("text", ["\ud83d", "boat \udc00 and", "🙂\ud800"])
def test_half_a_character_is_refused_with_its_place(tokenizer: Tokenizer, text: str):
    place = next(number for number, character in enumerate(text, 1) if "\ud800" <= character <= "\udfff")
    for encode in (tokenizer.encode, tokenizer.encode_with_offsets, lambda text: tokenizer([text])):
        with pytest.raises(DataError, match=f"character {place} is .*half of a surrogate pair"):
            encode(text)
