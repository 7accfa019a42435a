"""Finding and loading the tokenizer of a model directory."""

from pathlib import Path

from trainer.config.problems import DataError, Problem
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
    CONFIG_FILE,
    SPECIAL_FILE,
    ADDED_FILE,
    TEMPLATE_FILE,
    "chat_template.json",
)


def load_tokenizer(directory: str | Path) -> Tokenizer:
    """Load a tokenizer. `tokenizer.json` is preferred where both kinds lie, as Hugging Face's tools do.

    Raises:
        DataError: there is none, or a file cannot be read.
    """
    directory = Path(directory)
    settings = read_settings(directory)
    files = {name: (directory / name).read_bytes() for name in FILES if (directory / name).is_file()}
    return Tokenizer(_engine(directory, files, settings), settings, files)


def _engine(directory: Path, files: dict[str, bytes], settings: TokenizerSettings) -> Engine:
    name = next((name for name in (JSON_FILE, SENTENCEPIECE_FILE) if name in files), None)
    if name is None:
        msg = f"has neither {JSON_FILE} nor {SENTENCEPIECE_FILE}"
        raise DataError(
            Problem((str(directory),), msg, "Put the model's tokenizer files beside its weights.")
        )
    try:
        if name == JSON_FILE:
            return JsonEngine(files[name].decode(), settings)
        return SentencePieceEngine(files[name], settings)
    except Exception as error:  # the libraries raise bare Exception, DecodeError, RuntimeError or ValueError
        path = directory / name
        raise DataError(
            Problem((str(path),), f"is not a tokenizer ({error})", "Fetch the tokenizer again.")
        ) from error
