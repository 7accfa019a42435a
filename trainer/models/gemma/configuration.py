"""What a Gemma `config.json` says."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from trainer.config.problems import DataError, Problem

# All of them mean the tanh form: "gelu" is what the first published files say, and they mean the tanh form
# too.
_TANH_GELU = ("gelu", "gelu_pytorch_tanh", "gelu_new")


@dataclass(frozen=True)
class GemmaConfig:
    """Shape and constants of a Gemma model; defaults are those of the published 7b.

    Attributes:
        vocab_size: rows of the embedding.
        hidden_size: width of the residual stream.
        intermediate_size: width inside the MLP.
        num_hidden_layers: decoder layers.
        num_attention_heads: query heads.
        num_key_value_heads: key and value heads; divides the query heads.
        head_dim: width of one head, independent of hidden_size / num_attention_heads.
        hidden_act: always the tanh form of GELU, whatever old files call it.
        max_position_embeddings: longest sequence the model was trained for.
        initializer_range: standard deviation of fresh weights.
        rms_norm_eps: added to the mean square.
        pad_token_id, eos_token_id, bos_token_id: token ids; a model may have several end tokens.
        tie_word_embeddings: the head is the embedding.
        rope_theta: base of the rotary frequencies.
        attention_bias: biases on the four attention projections.
        extra: fields of the file that have no meaning here; written back as they came.
    """

    vocab_size: int = 256000
    hidden_size: int = 3072
    intermediate_size: int = 24576
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    num_key_value_heads: int = 16
    head_dim: int = 256
    hidden_act: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 8192
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    bos_token_id: int | None = 2
    tie_word_embeddings: bool = True
    rope_theta: float = 10000.0
    attention_bias: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    model_type = "gemma"

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Read the content of a config.json.

        Raises:
            DataError: a field asks for something this model does not do, or sizes do not fit; all at once.
        """
        raw = {key: value for key, value in raw.items() if key != "model_type"}
        names = {item.name for item in fields(cls)} - {"extra"}
        known = {name: raw.pop(name) for name in names & raw.keys()}
        # transformers 5 writes the rotary base inside a dictionary of its own.
        rotary = raw.get("rope_parameters") or {}
        known.setdefault("rope_theta", rotary.get("rope_theta", cls.rope_theta))
        problems = [*_size_problems(known, cls), *_unsupported(known, raw)]
        if problems:
            raise DataError(problems)
        known["hidden_act"] = cls.hidden_act
        if "hidden_activation" in raw:
            raw["hidden_activation"] = cls.hidden_act
        return cls(**known, extra=raw)

    def to_dict(self) -> dict[str, Any]:
        """The content of a config.json that Hugging Face tools read."""
        known = {"architectures": ["GemmaForCausalLM"], "model_type": self.model_type, **asdict(self)}
        return {**known, **known.pop("extra")}


def _size_problems(known: Mapping[str, Any], cls: type[GemmaConfig]) -> list[Problem]:
    problems = []
    sizes = [item.name for item in fields(cls) if item.type is int or item.type == "int"]
    for name in sizes:
        value = known.get(name, getattr(cls, name))
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            problems.append(_problem(name, f"got {value!r}, expected a whole number of at least 1"))
    if problems:
        return problems
    heads = known.get("num_attention_heads", cls.num_attention_heads)
    kv_heads = known.get("num_key_value_heads", cls.num_key_value_heads)
    head_dim = known.get("head_dim", cls.head_dim)
    if heads % kv_heads:
        problems.append(
            _problem("num_key_value_heads", f"got {kv_heads}, expected a divisor of {heads} heads")
        )
    if head_dim % 2:
        problems.append(_problem("head_dim", f"got {head_dim}, expected an even number"))
    return problems


def _unsupported(known: Mapping[str, Any], extra: Mapping[str, Any]) -> list[Problem]:
    problems = []
    activation = extra.get("hidden_activation") or known.get("hidden_act", GemmaConfig.hidden_act)
    if activation not in _TANH_GELU:
        problems.append(_problem("hidden_act", f"got {activation!r}, expected 'gelu_pytorch_tanh'"))
    rotary = extra.get("rope_parameters") or {}
    scaling = extra.get("rope_scaling") or extra.get("rope_scaling_type")
    if scaling or rotary.get("rope_type", "default") != "default":
        problems.append(_problem("rope_scaling", f"got {scaling or rotary}, expected none"))
    for name in ("alibi", "attention_dropout", "use_bidirectional_attention"):
        if extra.get(name):
            problems.append(_problem(name, f"got {extra[name]!r}, expected it to be off"))
    return problems


def _problem(name: str, msg: str) -> Problem:
    return Problem(("model_name_or_path", "config.json", name), msg, "Use a model whose config.json says so.")
