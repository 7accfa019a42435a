"""All kinds of tokenizer files give the ids of transformers, and of the libraries that define them."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as JsonTokenizer

from trainer.tokenizers import Tokenizer, load_tokenizer
from trainer.tokenizers.byte_level import MERGES_FILE, VOCABULARY_FILE
from trainer.tokenizers.loading import JSON_FILE, SENTENCEPIECE_FILE

GOLDEN = Path(__file__).parents[2] / "golden"
HARBOUR = Path(__file__).parents[3] / "trainer" / "tools" / "text" / "harbour.txt"
SPACE = "\u2581"  # how SentencePiece writes a space; in a text it cannot be told from one
MODEL_FILES = {
    "gemma_tokenizer": ((JSON_FILE,), (SENTENCEPIECE_FILE,)),
    "gemma_pieces": ((JSON_FILE,), (SENTENCEPIECE_FILE,)),
    "bloom_tokenizer": ((JSON_FILE,), (VOCABULARY_FILE, MERGES_FILE)),
}
SPECIAL = {
    "gemma": ("<bos>", "<eos>", "<pad>", "<start_of_turn>", "<end_of_turn>", "<mask>"),
    "bloom": ("<s>", "</s>", "<pad>", "<unk>"),
}
KINDS = [(name, files) for name, kinds in MODEL_FILES.items() for files in kinds]


@dataclass
class Golden:
    """A golden tokenizer loaded from one kind of file, what transformers gives, and the other kind's."""

    name: str
    tokenizer: Tokenizer
    other: Tokenizer
    plain: dict[str, list[int]]
    special: dict[str, list[int]]

    @property
    def texts(self) -> list[str]:
        whole = HARBOUR.read_text(encoding="utf-8")
        return [*self.plain, *self.special, *whole.splitlines(), whole]


def load(name: str, files: tuple[str, ...], directory: Path) -> Tokenizer:
    """The golden tokenizer with only one kind of its model files."""
    directory.mkdir()
    for file in (*files, "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(GOLDEN / name / file, directory / file)
    return load_tokenizer(directory)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: f"{kind[0]}-{kind[1][0]}")
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    name, files = request.param
    folder = tmp_path_factory.mktemp("tokenizers")
    (others,) = (kind for kind in MODEL_FILES[name] if kind != files)
    ids = json.loads((GOLDEN / name / "ids.json").read_text(encoding="utf-8"))
    return Golden(
        name,
        load(name, files, folder / "one"),
        load(name, others, folder / "other"),
        ids["plain"],
        ids["special"],
    )


def test_ids_are_those_of_transformers(golden: Golden):
    assert len(golden.plain) > 20
    for text, ids in golden.plain.items():
        assert golden.tokenizer.encode(text) == ids, text


def test_special_tokens_are_read_when_allowed(golden: Golden):
    for text, ids in golden.special.items():
        found = golden.tokenizer.encode(text, add_special_tokens=False, allow_special=True)
        assert found == ids, text


def test_special_tokens_inside_a_text_are_just_text(golden: Golden):
    specials = {golden.tokenizer.token_to_id(token) for token in SPECIAL[golden.name[:5]]}
    assert None not in specials
    for text in golden.special:
        ids = golden.tokenizer.encode(text, add_special_tokens=False)
        assert not specials & set(ids), text
        assert golden.tokenizer.decode(ids) == text


def test_a_text_comes_back_as_it_was(golden: Golden):
    for text in golden.texts:
        if SPACE not in text or golden.name == "bloom_tokenizer":
            assert golden.tokenizer.decode(golden.tokenizer.encode(text)) == text


def test_both_kinds_of_file_give_the_same_ids_and_places(golden: Golden):
    for text in golden.texts:
        for allow_special in (False, True):
            one = golden.tokenizer.encode_with_offsets(text, allow_special=allow_special)
            assert one == golden.other.encode_with_offsets(text, allow_special=allow_special), text
            assert one.ids == golden.tokenizer.encode(text, allow_special=allow_special)


def test_places_cover_the_text_in_order(golden: Golden):
    for text in golden.texts:
        end = 0
        encoding = golden.tokenizer.encode_with_offsets(text, add_special_tokens=False)
        for first, last in encoding.offsets:
            assert first <= end
            assert last > first
            end = max(end, last)
        assert end == len(text)


def test_ids_of_a_whole_text_are_those_of_both_libraries():
    tokenizer = load_tokenizer(GOLDEN / "gemma_tokenizer")
    by_sentencepiece = SentencePieceProcessor(model_file=str(GOLDEN / "gemma_tokenizer" / SENTENCEPIECE_FILE))
    by_tokenizers = JsonTokenizer.from_file(str(GOLDEN / "gemma_tokenizer" / JSON_FILE))
    by_tokenizers.encode_special_tokens = True
    for text in HARBOUR.read_text(encoding="utf-8").splitlines():
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == by_sentencepiece.encode(text)
        assert ids == by_tokenizers.encode(text, add_special_tokens=False).ids


def test_special_ids_and_habits_are_the_familys(golden: Golden):
    tokenizer = golden.tokenizer
    ids = tokenizer.pad_id, tokenizer.eos_id, tokenizer.bos_id, tokenizer.unk_id
    assert (tokenizer.padding_side, tokenizer.chat_template) == ("left", None)
    if golden.name == "bloom_tokenizer":
        assert ids == (3, 2, 1, 0)
        assert (tokenizer.add_bos, tokenizer.add_eos) == (False, False)
    else:
        assert ids == (0, 1, 2, 3)
        assert (tokenizer.add_bos, tokenizer.add_eos) == (True, False)


def test_decoding_shows_special_tokens_on_request(golden: Golden):
    token = SPECIAL[golden.name[:5]][1]
    ids = golden.tokenizer.encode(f"{token}user", add_special_tokens=False, allow_special=True)
    assert golden.tokenizer.decode(ids) == "user"
    assert golden.tokenizer.decode(ids, skip_special_tokens=False) == f"{token}user"


def test_ids_beyond_the_vocabulary_decode_to_nothing(golden: Golden):
    (a,) = golden.tokenizer.encode("a", add_special_tokens=False)
    assert golden.tokenizer.decode([a, golden.tokenizer.vocab_size + 5, a]) == "aa"
