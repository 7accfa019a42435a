"""A small random model with a real tokenizer, in Hugging Face's layout, for trying and testing.

Its tokenizer is trained on a text that ships with this package and has the habits of the family's published
one.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from trainer.config.problems import ConfigError, Problem
from trainer.files import atomic_file, write_json

DEFAULT_TEXT = Path(__file__).parent / "text" / "harbour.txt"
MASK = "<mask>"
TURN_TOKENS = ("<start_of_turn>", "<end_of_turn>")
_ROLES = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}

# One training step of 8 x 64 tokens takes some tens of milliseconds on two CPU cores.
_SIZES = {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 2048,
}
_VOCAB_SIZE = 1024


def build_tiny_model(
    family: str, directory: str | Path, *, text: Path | None = None, seed: int = 0, **sizes: Any
) -> Path:
    """Build a model directory. The same arguments give the same bytes.

    Args:
        family: model family; "gemma".
        directory: created when it is not there; files of the same names are replaced.
        text: UTF-8 text to train the tokenizer on, one sentence or paragraph a line; by default the shipped
            one.
        seed: of the weights.
        **sizes: fields of the family's configuration, such as `hidden_size=64`. `vocab_size` is what the
        tokenizer aims at; a short text gives a smaller one.

    Raises:
        ConfigError: the family or a size is not known, or the text does not give such a vocabulary.
        DataError: the sizes do not fit together.
    """
    from trainer.ops.host import import_paddle

    import_paddle()
    if family != "gemma":
        msg = f"got {family!r}, expected 'gemma'"
        raise ConfigError(Problem(("family",), msg, "Choose a family this version knows."))
    from trainer.models import new_model, save_model
    from trainer.models.gemma.configuration import GemmaConfig

    unknown = [name for name in sizes if name not in GemmaConfig.__dataclass_fields__]
    if unknown:
        problems = [
            Problem((name,), "is not a field of GemmaConfig", "See its attributes.") for name in unknown
        ]
        raise ConfigError(problems)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    lines = (text or DEFAULT_TEXT).read_text(encoding="utf-8").splitlines()
    vocab_size = write_tokenizer(directory, lines, sizes.pop("vocab_size", _VOCAB_SIZE))
    config = GemmaConfig.from_dict({**_SIZES, **sizes, "vocab_size": vocab_size})
    model = new_model(config, seed)
    ids = {role: config.to_dict()[role] for role in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.generation_config = {"_from_model_config": True, **ids}
    save_model(model, directory)
    return directory


def write_tokenizer(directory: Path, lines: list[str], vocab_size: int) -> int:
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
