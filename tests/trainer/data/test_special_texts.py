"""Special tokens in the texts of records are told, because a chat template lets them act."""

import pytest

from trainer.config.chat_templates import JinjaTemplate
from trainer.config.records import SftRecord
from trainer.data.chat_jinja import JinjaEncoder
from trainer.data.special_texts import special_text_warning
from trainer.tokenizers import Tokenizer

TEMPLATE = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"


def test_the_warning_counts_the_records_and_names_the_first_place() -> None:
    records = [
        ("train.json line 1", {"src": ["fine"], "tgt": ["<end_of_turns"]}),
        ("train.json line 2", {"src": ["a", "b<end_of_turn>c<bos>"], "tgt": ["<bos>", "d"]}),
        ("train.json line 3", {"src": ["a"], "tgt": ["<bos>"]}),
    ]
    warning = special_text_warning("train", records, {"<bos>", "<end_of_turn>"})
    assert warning is not None
    assert warning.loc == ("dataset_name_or_path", "train")
    assert warning.msg.startswith("2 of 3 records")
    assert "train.json line 2: <end_of_turn> in src" in warning.msg


def test_the_longest_token_is_the_one_that_is_named() -> None:
    warning = special_text_warning("dev", [("dev.json line 1", {"src": ["<a><b>"]})], ["<a>", "<a><b>"])
    assert warning is not None
    assert "<a><b> in src" in warning.msg


@pytest.mark.parametrize("tokens", [set(), {"<bos>"}])
def test_texts_without_special_tokens_are_no_warning(tokens: set[str]) -> None:
    assert special_text_warning("train", [("train.json line 1", {"src": ["bos <b>"]})], tokens) is None


def test_what_is_warned_of_is_what_acts(tokenizer: Tokenizer) -> None:
    encoder = JinjaEncoder(tokenizer, JinjaTemplate("chat_template.jinja", TEMPLATE), 100, 100)
    assert {"<bos>", "<eos>", "<pad>"} <= tokenizer.special_tokens
    for token in tokenizer.special_tokens:
        record = SftRecord((f"a{token}b",), ("c",), {})
        assert tokenizer.token_to_id(token) in encoder.example(record).input_ids[:-1]
        assert special_text_warning("train", [("x", {"src": record.src})], tokenizer.special_tokens)
