"""Finding and loading the tokenizer of a model directory."""

import json
from dataclasses import replace
from pathlib import Path

from trainer.config.problems import DataError, Problem
from trainer.tokenizers.byte_level import MERGES_FILE, ROLES, VOCABULARY_FILE, byte_level_json
from trainer.tokenizers.engines import Engine, JsonEngine, SentencePieceEngine
from trainer.tokenizers.settings import (
    ADDED_FILE,
    CONFIG_FILE,
    SPECIAL_FILE,
    TEMPLATE_FILE,
    TokenizerSettings,
    read_settings,
)
from trainer.tokenizers.tokenizer import Tokenizer

JSON_FILE = "tokenizer.json"
SENTENCEPIECE_FILE = "tokenizer.model"
FILES = (
    JSON_FILE,
    SENTENCEPIECE_FILE,
    VOCABULARY_FILE,
    MERGES_FILE,
    CONFIG_FILE,
    SPECIAL_FILE,
    ADDED_FILE,
    TEMPLATE_FILE,
    "chat_template.json",
)

# Classes that say nothing about the family.
_ANY_KIND = ("PreTrainedTokenizerFast", "TokenizersBackend")


def load_tokenizer(directory: str | Path) -> Tokenizer:
    """Load a tokenizer. `tokenizer.json` is preferred where several kinds lie, as Hugging Face's tools do;
    then `tokenizer.model`; then `vocab.json` with `merges.txt`, which BLOOM's tokenizer reads.

    Raises:
        DataError: there is none, or a file cannot be read.
    """
    directory = Path(directory)
    settings = read_settings(directory)
    files = {name: (directory / name).read_bytes() for name in FILES if (directory / name).is_file()}
    if JSON_FILE not in files and SENTENCEPIECE_FILE not in files and VOCABULARY_FILE in files:
        settings = _with_bloom_roles(directory, settings)
        files[JSON_FILE] = _byte_level(directory, files, settings).encode()
    return Tokenizer(_engine(directory, files, settings), settings, files)


def _engine(directory: Path, files: dict[str, bytes], settings: TokenizerSettings) -> Engine:
    name = next((name for name in (JSON_FILE, SENTENCEPIECE_FILE) if name in files), None)
    if name is None:
        msg = f"has neither {JSON_FILE} nor {SENTENCEPIECE_FILE} nor {VOCABULARY_FILE} with {MERGES_FILE}"
        raise DataError(
            Problem((str(directory),), msg, "Put the model's tokenizer files beside its weights.")
        )
    try:
        if name == JSON_FILE:
            return JsonEngine(files[name].decode(), settings)
        return SentencePieceEngine(files[name], settings)
    except Exception as error:  # the libraries raise bare Exception, DecodeError, RuntimeError or ValueError
        raise _broken(directory / name, error) from error


def _with_bloom_roles(directory: Path, settings: TokenizerSettings) -> TokenizerSettings:
    if settings.kind and settings.kind not in _ANY_KIND and "bloom" not in settings.kind.lower():
        msg = f"belongs to a {settings.kind}; without {JSON_FILE} only BLOOM's tokenizer can be read from it"
        path = directory / VOCABULARY_FILE
        raise DataError(Problem((str(path),), msg, f"Put the {JSON_FILE} of the model there."))
    roles = {**ROLES, **settings.roles}
    return replace(settings, roles=roles, special_tokens=settings.special_tokens | set(roles.values()))


def _byte_level(directory: Path, files: dict[str, bytes], settings: TokenizerSettings) -> str:
    """The tokenizer.json that vocab.json and merges.txt stand for."""
    if MERGES_FILE not in files:
        msg = f"has {VOCABULARY_FILE} but no {MERGES_FILE}"
        raise DataError(Problem((str(directory),), msg, "Fetch the tokenizer again."))
    name = VOCABULARY_FILE
    try:
        vocabulary = {str(token): int(number) for token, number in json.loads(files[name]).items()}
        name = MERGES_FILE
        return byte_level_json(vocabulary, files[name].decode(), settings.roles)
    except (ValueError, TypeError, AttributeError) as error:
        raise _broken(directory / name, error) from error


def _broken(path: Path, error: Exception) -> DataError:
    return DataError(Problem((str(path),), f"is not a tokenizer ({error})", "Fetch the tokenizer again."))
