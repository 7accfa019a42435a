"""What every family's configuration has, and checks that they share."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from trainer.config.problems import Problem


@dataclass(frozen=True)
class ModelConfig:
    """What code outside a family reads from its configuration; a family adds fields and defaults.

    Attributes:
        vocab_size: rows of the embedding.
        hidden_size: width of the residual stream.
        num_hidden_layers: decoder layers.
        num_attention_heads: query heads.
        num_key_value_heads: key and value heads; divides the query heads.
        head_dim: width of one head, independent of hidden_size / num_attention_heads.
        attention_dropout: share of the attention weights that are dropped in training.
        initializer_range: standard deviation of fresh weights.
        tie_word_embeddings: the head is the embedding.
        pad_token_id, eos_token_id, bos_token_id: token ids; a model may have several end tokens.
    """

    model_type: ClassVar[str]

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    attention_dropout: float
    initializer_range: float
    tie_word_embeddings: bool
    pad_token_id: int | None
    eos_token_id: int | list[int] | None
    bos_token_id: int | None

    def to_dict(self) -> dict[str, Any]:
        """The content of config.json."""
        raise NotImplementedError


# Numbers that something is divided by, or whose logarithm is taken.
_POSITIVE = ("rope_theta",)


def value_problems(config_class: type[ModelConfig], known: Mapping[str, Any]) -> Iterator[Problem]:
    """Fields of `config_class` that `known` leaves out and needs, numbers that are none or out of range."""
    for item in fields(config_class):
        if not item.init or item.name == "extra":
            continue
        value = known.get(item.name, item.default)
        if value is MISSING:
            yield config_problem(item.name, "is missing, and there is no size that could be meant")
        elif expected := _expected(item.name, item.type, value):
            yield config_problem(item.name, f"got {value!r}, expected {expected}")


def _expected(name: str, kind: object, value: object) -> str | None:
    """What a field of type `kind` should have been; None when `value` is all right."""
    if kind is bool and type(value) is not bool:
        return "true or false"
    if kind is int and not (type(value) is int and value >= 1):
        return "a whole number of at least 1"
    if kind is float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            return "a number that is not negative"
        if name in _POSITIVE and value == 0:
            return "a number above 0"
        if name.endswith("dropout") and value >= 1:
            return "a share below 1"
    return None


def config_problem(name: str, msg: str) -> Problem:
    """A problem with a field of config.json."""
    return Problem(("model_name_or_path", "config.json", name), msg, "Use a model whose config.json says so.")
