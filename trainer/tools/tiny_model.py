"""A small random model with a real tokenizer, in Hugging Face's layout, for trying and testing.

Its tokenizer is trained on a text that ships with this package and has the habits of the family's published
one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from trainer.config.problems import ConfigError, Problem
from trainer.tools.tiny_byte_bpe import write_byte_bpe
from trainer.tools.tiny_sentencepiece import write_sentencepiece

DEFAULT_TEXT = Path(__file__).parent / "text" / "harbour.txt"
_VOCAB_SIZE = 1024


@dataclass(frozen=True)
class _Recipe:
    """How a family's tiny model is made.

    Attributes:
        write_tokenizer: trains a tokenizer on lines, for a number of ids, and writes it to a directory;
            returns how many ids it got.
        sizes: fields of the configuration. One training step of 8 x 64 tokens takes some tens of milliseconds
            on two CPU cores.
    """

    write_tokenizer: Callable[[Path, list[str], int], int]
    sizes: Mapping[str, Any]


_RECIPES = {
    "gemma": _Recipe(
        write_sentencepiece,
        {
            "hidden_size": 128,
            "intermediate_size": 512,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "max_position_embeddings": 2048,
        },
    ),
    "bloom": _Recipe(
        write_byte_bpe,
        {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4},
    ),
}


def build_tiny_model(
    family: str, directory: str | Path, *, text: Path | None = None, seed: int = 0, **sizes: Any
) -> Path:
    """Build a model directory. The same arguments give the same bytes.

    Args:
        family: model family; "gemma" or "bloom".
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
    if family not in _RECIPES:
        msg = f"got {family!r}, expected one of: {', '.join(map(repr, _RECIPES))}"
        raise ConfigError(Problem(("family",), msg, "Choose a family this version knows."))
    from trainer.models import new_model, save_model
    from trainer.models.registry import family as family_of

    recipe, config_class = _RECIPES[family], family_of(family).config_class
    _check_names(config_class, sizes)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    lines = (text or DEFAULT_TEXT).read_text(encoding="utf-8").splitlines()
    vocab_size = recipe.write_tokenizer(directory, lines, sizes.pop("vocab_size", _VOCAB_SIZE))
    config = config_class.from_dict({**recipe.sizes, **sizes, "vocab_size": vocab_size})
    model = new_model(config, seed)
    ids = {role: getattr(config, role) for role in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.generation_config = {"_from_model_config": True, **ids}
    save_model(model, directory)
    return directory


def _check_names(config_class: Any, sizes: Mapping[str, Any]) -> None:
    known = {item.name for item in fields(config_class) if item.init}
    if unknown := sizes.keys() - known:
        name = config_class.__name__
        raise ConfigError(
            [Problem((size,), f"is not a field of {name}", "See its attributes.") for size in sorted(unknown)]
        )
