"""What a Gemma `config.json` says."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self

from trainer.config.problems import DataError, Problem
from trainer.models.configuration import ModelConfig, config_problem, value_problems

# All of them mean the tanh form: "gelu" is what the first published files say, and they mean the tanh form
# too.
_TANH_GELU = ("gelu", "gelu_pytorch_tanh", "gelu_new")
# PaddleNLP's switches; other tools do not know them, so they are written only when they are on.
_SWITCHES = ("alibi", "fuse_attention_qkv", "fuse_attention_ffn")


@dataclass(frozen=True)
class GemmaConfig(ModelConfig):
    """Shape and constants of a Gemma model; defaults are those of the published 7b.

    Attributes:
        intermediate_size: width inside the MLP.
        hidden_act: always the tanh form of GELU, whatever old files call it.
        max_position_embeddings: longest sequence the model was trained for.
        rms_norm_eps: added to the mean square.
        rope_theta: base of the rotary frequencies.
        attention_bias: biases on the four attention projections.
        alibi: positions enter as linear biases of attention and not as rotations.
        fuse_attention_qkv: query, key and value projections are one matrix in memory. Files do not change.
        fuse_attention_ffn: so are the gate and up projections.
        extra: fields of the file that have no meaning here; written back as they came.
    """

    model_type: ClassVar[str] = "gemma"

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
    attention_dropout: float = 0.0
    alibi: bool = False
    fuse_attention_qkv: bool = False
    fuse_attention_ffn: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

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
        problems = [*_value_problems(known), *_unsupported(known, raw)]
        if problems:
            raise DataError(problems)
        known["hidden_act"] = cls.hidden_act
        if "hidden_activation" in raw:
            raw["hidden_activation"] = cls.hidden_act
        return cls(**known, extra=raw)

    def to_dict(self) -> dict[str, Any]:
        """The content of a config.json that Hugging Face tools read."""
        known = asdict(self)
        extra = known.pop("extra")
        for name in _SWITCHES:
            if not known[name]:
                del known[name]
        return {"architectures": ["GemmaForCausalLM"], "model_type": self.model_type, **known, **extra}


def _value_problems(known: Mapping[str, Any]) -> list[Problem]:
    """Numbers that are none, and sizes that do not fit together."""
    problems = list(value_problems(GemmaConfig, known))
    if problems:
        return problems
    values = {item.name: known.get(item.name, item.default) for item in fields(GemmaConfig)}
    heads, kv_heads = values["num_attention_heads"], values["num_key_value_heads"]
    if heads % kv_heads:
        expected = f"expected a divisor of num_attention_heads ({heads})"
        problems.append(config_problem("num_key_value_heads", f"got {kv_heads}, {expected}"))
    if values["head_dim"] % 2 and not values["alibi"]:
        msg = f"got {values['head_dim']}, expected an even number"
        problems.append(config_problem("head_dim", msg))
    return problems


def _unsupported(known: Mapping[str, Any], extra: Mapping[str, Any]) -> Iterator[Problem]:
    activation = extra.get("hidden_activation") or known.get("hidden_act", GemmaConfig.hidden_act)
    if activation not in _TANH_GELU:
        yield config_problem("hidden_act", f"got {activation!r}, expected 'gelu_pytorch_tanh'")
    rotary = extra.get("rope_parameters") or {}
    scaling = extra.get("rope_scaling") or extra.get("rope_scaling_type")
    if scaling or rotary.get("rope_type", "default") != "default":
        yield config_problem("rope_scaling", f"got {scaling or rotary}, expected none")
    if bidirectional := extra.get("use_bidirectional_attention"):
        msg = f"got {bidirectional!r}, expected it to be off"
        yield config_problem("use_bidirectional_attention", msg)
