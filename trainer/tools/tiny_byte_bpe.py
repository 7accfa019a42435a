"""A small byte-level BPE tokenizer with the habits of BLOOM's."""

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from trainer.config.problems import ConfigError, Problem
from trainer.files import atomic_file, write_json
from trainer.tokenizers.byte_level import WORDS

# The order gives the ids 0, 1, 2, 3.
_ROLES = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
_BYTES = 256


def write_byte_bpe(directory: Path, lines: list[str], vocab_size: int) -> int:
    """Train the tokenizer and write its files; returns how many ids it has.

    Raises:
        ConfigError: the vocabulary has no room for every byte.
    """
    smallest = _BYTES + len(_ROLES)
    if vocab_size < smallest:
        msg = f"got {vocab_size}, expected at least {smallest}: every byte has an id"
        raise ConfigError(Problem(("vocab_size",), msg, f"Use at least {smallest}."))
    tokenizer = _train(lines, vocab_size)
    with atomic_file(directory / "tokenizer.json") as file:
        file.write(tokenizer.to_str(pretty=True).encode())
    write_json(directory / "tokenizer_config.json", _tokenizer_config())
    write_json(directory / "special_tokens_map.json", _ROLES)
    return tokenizer.get_vocab_size(with_added_tokens=True)


def _train(lines: list[str], vocab_size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_])
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        special_tokens=list(_ROLES.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([f"{line}\n" for line in lines], trainer)
    return tokenizer


def _tokenizer_config() -> dict[str, object]:
    return {
        **_ROLES,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "padding_side": "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
