import json
import shutil
from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer

from trainer import load_tokenizer
from trainer.config.problems import DataError

GOLDEN = Path(__file__).parents[2] / "golden" / "gemma_tokenizer"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A tokenizer directory with a SentencePiece model."""
    path = Path(shutil.copytree(GOLDEN, tmp_path / "tokenizer"))
    (path / "tokenizer.json").unlink()
    return path


@pytest.fixture
def json_directory(tmp_path: Path) -> Path:
    """A tokenizer directory with a tokenizer.json."""
    path = Path(shutil.copytree(GOLDEN, tmp_path / "json"))
    (path / "tokenizer.model").unlink()
    return path


def change(directory: Path, **fields: object) -> None:
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


class TestBeginningAndEnd:
    def test_the_config_decides_what_is_added(self, directory: Path, json_directory: Path):
        for path in (directory, json_directory):
            change(path, add_bos_token=False, add_eos_token=True)
            ids = load_tokenizer(path).encode("boat")
            assert (ids[0] != 2, ids[-1]) == (True, 1)

    def test_without_a_word_in_the_config_the_file_decides(self, directory: Path, json_directory: Path):
        for path in (directory, json_directory):
            change(path, add_bos_token=None, add_eos_token=None)
            tokenizer = load_tokenizer(path)
            assert (tokenizer.add_bos, tokenizer.add_eos) == (True, False)

    def test_nothing_is_added_when_not_wanted(self, directory: Path):
        tokenizer = load_tokenizer(directory)
        assert tokenizer.encode("boat")[1:] == tokenizer.encode("boat", add_special_tokens=False)


class TestSpecialTokens:
    def test_a_sentencepiece_model_alone_knows_its_own(self, directory: Path):
        (directory / "tokenizer_config.json").unlink()
        (directory / "special_tokens_map.json").unlink()
        tokenizer = load_tokenizer(directory)
        assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.bos_id, tokenizer.unk_id) == (0, 1, 2, 3)
        assert tokenizer.add_bos

    def test_they_may_be_named_in_the_special_tokens_map(self, json_directory: Path):
        (json_directory / "tokenizer_config.json").unlink()
        tokenizer = load_tokenizer(json_directory)
        assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (2, 1, True)

    def test_they_may_be_objects(self, directory: Path):
        change(directory, eos_token={"content": "<end_of_turn>", "lstrip": False})
        tokenizer = load_tokenizer(directory)
        assert tokenizer.eos_id == tokenizer.token_to_id("<end_of_turn>")

    def test_added_tokens_beyond_the_model_file_are_known(self, directory: Path):
        size = load_tokenizer(directory).vocab_size
        (directory / "added_tokens.json").write_text(json.dumps({"<tool>": size, "<note>": size + 1}))
        change(directory, additional_special_tokens=["<note>"])
        tokenizer = load_tokenizer(directory)
        assert tokenizer.vocab_size == size + 2
        ids = tokenizer.encode("a<tool>b<note>c")
        assert size in ids
        assert size + 1 not in ids
        assert size + 1 in tokenizer.encode("a<note>", allow_special=True)
        assert tokenizer.decode(ids) == "a<tool>b<note>c"
        assert tokenizer.decode([size + 1]) == ""

    def test_special_pieces_that_the_model_file_reads_out_of_any_text_are_guarded(self, tmp_path: Path):
        text = "the boat and the harbour and the boat again"
        SentencePieceTrainer.train(
            sentence_iterator=iter([text] * 5),
            model_prefix=str(tmp_path / "tokenizer"),
            model_type="bpe",
            vocab_size=300,
            hard_vocab_limit=False,
            byte_fallback=True,
            add_dummy_prefix=False,
            user_defined_symbols=["<turn>", "<b>"],
            minloglevel=2,
        )
        special = {"additional_special_tokens": ["<turn>"]}
        (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
        tokenizer = load_tokenizer(tmp_path)
        turn, bold = tokenizer.token_to_id("<turn>"), tokenizer.token_to_id("<b>")
        assert turn not in tokenizer.encode("the boat<turn><b>")
        assert bold in tokenizer.encode("the boat<turn><b>")
        assert turn in tokenizer.encode("the boat<turn><b>", allow_special=True)
        assert tokenizer.decode(tokenizer.encode("the boat<turn><b>")) == "the boat<turn><b>"

    def test_an_unknown_token_has_no_id(self, directory: Path, json_directory: Path):
        assert load_tokenizer(directory).token_to_id("<no such token>") is None
        assert load_tokenizer(json_directory).token_to_id("<no such token>") is None


class TestChatTemplate:
    def test_it_is_read_from_the_config(self, directory: Path):
        change(directory, chat_template="{{ messages }}")
        assert load_tokenizer(directory).chat_template == "{{ messages }}"

    def test_of_several_the_default_is_taken(self, directory: Path):
        named = [{"name": "tool", "template": "a"}, {"name": "default", "template": "b"}]
        change(directory, chat_template=named)
        assert load_tokenizer(directory).chat_template == "b"

    def test_a_file_of_its_own_wins(self, directory: Path):
        change(directory, chat_template="from the config")
        (directory / "chat_template.jinja").write_text("from the file")
        assert load_tokenizer(directory).chat_template == "from the file"


class TestFiles:
    def test_saving_writes_the_same_bytes(self, tmp_path: Path):
        load_tokenizer(GOLDEN).save(tmp_path / "saved")
        names = {path.name for path in GOLDEN.iterdir()} - {"ids.json"}
        assert {path.name for path in (tmp_path / "saved").iterdir()} == names
        assert all((tmp_path / "saved" / name).read_bytes() == (GOLDEN / name).read_bytes() for name in names)

    def test_saving_does_not_need_the_source_any_more(self, directory: Path, tmp_path: Path):
        tokenizer = load_tokenizer(directory)
        shutil.rmtree(directory)
        tokenizer.save(tmp_path / "saved")
        assert load_tokenizer(tmp_path / "saved").encode("boat") == tokenizer.encode("boat")

    def test_a_directory_without_a_tokenizer_is_refused(self, tmp_path: Path):
        with pytest.raises(DataError, match=r"neither tokenizer\.json nor tokenizer\.model nor vocab\.json"):
            load_tokenizer(tmp_path)

    @pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json", "tokenizer_config.json"])
    def test_a_broken_file_is_refused_by_name(self, tmp_path: Path, name: str):
        (tmp_path / name).write_bytes(b"{ no tokenizer")
        with pytest.raises(DataError, match=name.replace(".", r"\.")):
            load_tokenizer(tmp_path)
