"""A small SentencePiece tokenizer with the habits of Gemma's."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from trainer.config.problems import ConfigError, Problem
from trainer.files import atomic_file, write_json

MASK = "<mask>"
TURN_TOKENS = ("<start_of_turn>", "<end_of_turn>")
_ROLES = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}


def write_sentencepiece(directory: Path, lines: list[str], vocab_size: int) -> int:
    """Train a SentencePiece tokenizer with Gemma's habits and write its files; returns how many pieces it
    has.
    """
    model = _train_sentencepiece(lines, vocab_size)
    with atomic_file(directory / "tokenizer.model") as file:
        file.write(model)
    write_json(directory / "tokenizer_config.json", _tokenizer_config())
    special = {**_ROLES, "mask_token": MASK, "additional_special_tokens": list(TURN_TOKENS)}
    write_json(directory / "special_tokens_map.json", special)
    return SentencePieceProcessor(model_proto=model).get_piece_size()


def _train_sentencepiece(lines: list[str], vocab_size: int) -> bytes:
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter([line for line in lines if line.strip()]),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            byte_fallback=True,
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            normalization_rule_name="identity",
            split_digits=True,
            pad_id=0,
            eos_id=1,
            bos_id=2,
            unk_id=3,
            pad_piece=_ROLES["pad_token"],
            eos_piece=_ROLES["eos_token"],
            bos_piece=_ROLES["bos_token"],
            unk_piece=_ROLES["unk_token"],
            control_symbols=[MASK, *TURN_TOKENS],
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).rsplit("] ", 1)[-1]  # without the place in the library's source
        msg = f"got {vocab_size}, which does not suit the text ({reason})"
        hint = "Use at least 400 and a text with some sentences."
        raise ConfigError(Problem(("vocab_size",), msg, hint)) from error
    return model.getvalue()


def _tokenizer_config() -> Mapping[str, Any]:
    special = [*_ROLES.values(), MASK, *TURN_TOKENS]
    habits = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_bos_token": True,
        "add_eos_token": False,
        "added_tokens_decoder": {
            str(number): {"content": token, **habits} for number, token in enumerate(special)
        },
        "additional_special_tokens": list(TURN_TOKENS),
        **_ROLES,
        "mask_token": MASK,
        "clean_up_tokenization_spaces": False,
        "padding_side": "left",
        "tokenizer_class": "GemmaTokenizer",
    }
