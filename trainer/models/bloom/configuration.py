"""What a BLOOM `config.json` says."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self

from trainer.config.problems import DataError, Problem
from trainer.models.configuration import ModelConfig, config_problem, value_problems

# The name in files first, as every published one has it, then the others that tools accept.
_ALIASES = {
    "hidden_size": ("hidden_size", "n_embed", "n_embd"),
    "num_hidden_layers": ("n_layer", "num_hidden_layers"),
    "num_attention_heads": ("n_head", "num_attention_heads"),
}


@dataclass(frozen=True, kw_only=True)
class BloomConfig(ModelConfig):
    """Shape and constants of a BLOOM model.

    Width, layers and heads have no defaults: those of other tools describe a toy, which nobody means.

    Attributes:
        layer_norm_epsilon: added to the variance.
        apply_residual_connection_post_layernorm: the residual stream goes on from the normalised input of
            attention and MLP, not from the input itself.
        hidden_dropout: share dropped of what attention and MLP add to the residual stream, in training.
        extra: fields of the file that have no meaning here; written back as they came.
    """

    model_type: ClassVar[str] = "bloom"

    vocab_size: int = 250880
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int = field(init=False)
    head_dim: int = field(init=False)
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    apply_residual_connection_post_layernorm: bool = False
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    tie_word_embeddings: bool = True
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    pad_token_id: int | None = 3
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_key_value_heads", self.num_attention_heads)
        object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Read the content of a config.json.

        Raises:
            DataError: a size is missing, given twice or no number, or sizes do not fit; all at once.
        """
        raw = {key: value for key, value in raw.items() if key != "model_type"}
        names = {item.name for item in fields(cls) if item.init} - {"extra", *_ALIASES}
        known = {name: raw.pop(name) for name in names & raw.keys()}
        problems = []
        for name, aliases in _ALIASES.items():
            given = {alias: raw.pop(alias) for alias in aliases if alias in raw}
            if given:
                known[name] = next(iter(given.values()))
            if len(set(map(repr, given.values()))) > 1:
                problems.append(config_problem(name, f"got {given}, expected them to be equal"))
        problems += value_problems(cls, known)
        if not problems:
            problems += _shape_problems(known["hidden_size"], known["num_attention_heads"])
        if problems:
            raise DataError(problems)
        return cls(**known, extra=raw)

    def to_dict(self) -> dict[str, Any]:
        """The content of a config.json that Hugging Face tools read."""
        known = asdict(self)
        extra = known.pop("extra")
        for derived in ("num_key_value_heads", "head_dim"):
            del known[derived]
        for name, aliases in _ALIASES.items():
            known[aliases[0]] = known.pop(name)
        return {"architectures": ["BloomForCausalLM"], "model_type": self.model_type, **known, **extra}


def _shape_problems(hidden: int, heads: int) -> Iterator[Problem]:
    if hidden % heads:
        msg = f"got {heads}, expected a divisor of hidden_size ({hidden})"
        yield config_problem("num_attention_heads", msg)
