"""Both kinds of tokenizer file give the ids of the libraries that define them, and of transformers."""

import json
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as JsonTokenizer

from trainer.tokenizers import Tokenizer
from trainer.tokenizers.loading import JSON_FILE, SENTENCEPIECE_FILE, load_tokenizer

GOLDEN = Path(__file__).parents[2] / "golden" / "gemma_tokenizer"
IDS = json.loads((GOLDEN / "ids.json").read_text(encoding="utf-8"))
HARBOUR = Path(__file__).parents[3] / "trainer" / "tools" / "text" / "harbour.txt"
SPACE = "\u2581"  # how the format writes a space; in a text it cannot be told from one
TEXTS = [*IDS["plain"], *IDS["special"], *HARBOUR.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module", params=[JSON_FILE, SENTENCEPIECE_FILE])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The golden tokenizer with only one of its two model files."""
    directory = tmp_path_factory.mktemp("tokenizer")
    for name in (request.param, "tokenizer_config.json", "special_tokens_map.json"):
        (directory / name).write_bytes((GOLDEN / name).read_bytes())
    return load_tokenizer(directory)


@pytest.mark.parametrize("text", IDS["plain"])
def test_ids_are_those_of_transformers(tokenizer: Tokenizer, text: str):
    assert tokenizer.encode(text) == IDS["plain"][text]


@pytest.mark.parametrize("text", IDS["special"])
def test_special_tokens_are_read_when_allowed(tokenizer: Tokenizer, text: str):
    assert tokenizer.encode(text, add_special_tokens=False, allow_special=True) == IDS["special"][text]


@pytest.mark.parametrize("text", [text for text in (*IDS["plain"], *IDS["special"]) if SPACE not in text])
def test_a_text_comes_back_as_it_was(tokenizer: Tokenizer, text: str):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", IDS["special"])
def test_special_tokens_inside_a_text_are_just_text(tokenizer: Tokenizer, text: str):
    ids = tokenizer.encode(text, add_special_tokens=False)
    specials = {
        tokenizer.token_to_id(token) for token in ("<bos>", "<eos>", "<pad>", "<start_of_turn>", "<mask>")
    }
    assert not specials & set(ids)


def test_ids_of_a_whole_text_are_those_of_both_libraries(tokenizer: Tokenizer):
    by_sentencepiece = SentencePieceProcessor(model_file=str(GOLDEN / SENTENCEPIECE_FILE))
    by_tokenizers = JsonTokenizer.from_file(str(GOLDEN / JSON_FILE))
    by_tokenizers.encode_special_tokens = True
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == by_sentencepiece.encode(text)
        assert ids == by_tokenizers.encode(text, add_special_tokens=False).ids


def test_special_ids_and_habits_are_gemmas(tokenizer: Tokenizer):
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.bos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert (tokenizer.add_bos, tokenizer.add_eos, tokenizer.padding_side) == (True, False, "left")
    assert tokenizer.chat_template is None


def test_decoding_shows_special_tokens_on_request(tokenizer: Tokenizer):
    ids = tokenizer.encode("<start_of_turn>user", allow_special=True)
    assert tokenizer.decode(ids) == "user"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<bos><start_of_turn>user"


def test_ids_beyond_the_vocabulary_decode_to_nothing(tokenizer: Tokenizer):
    (a,) = tokenizer.encode("a", add_special_tokens=False)
    assert tokenizer.decode([a, tokenizer.vocab_size + 5, a]) == "aa"
