"""What the adapter_config.json of a Hugging Face PEFT adapter says."""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeGuard

from trainer.config.problems import DataError, Problem
from trainer.config.values import printable, show

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# The network that computed a prefix; needed to train on. PEFT does not read it.
PREFIX_ENCODER = "prefix_encoder.safetensors"

# A name on the Hugging Face hub, with a branch, tag or commit or without.
_HUB_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?", re.ASCII)

# More than any width of a model, and what machines can still count with.
_LARGEST_SIZE = 2**31 - 1

# Fields that change what an adapter computes and that are not supported; all of them are off by default.
_LORA_EXTRAS = (
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "use_dora",
    "lora_bias",
    "fan_in_fan_out",
    "layer_replication",
    "trainable_token_indices",
    "target_parameters",
    "use_qalora",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "use_bdlora",
    "velora_config",
)
# Ways to begin that leave the base model as it is; the others belong to a base that was changed with them.
_PLAIN_STARTS = (True, False, None, "gaussian", "orthogonal", "eva")


@dataclass(frozen=True)
class LoraSettings:
    """A LoRA adapter (Hu et al., arXiv 2106.09685): y = x W + dropout(x) A B s.

    Attributes:
        rank: inner width r.
        alpha: the scale s is alpha / r, or alpha / sqrt(r) with `rslora` (Kalajdzievski, arXiv 2312.03732).
        dropout: share of the inputs that is dropped in training.
        rslora: see alpha.
        targets: names of linear layers, or the ends of their paths; empty: all that the family has.
        base: the model it belongs to, a folder or a hub name; None: unknown.
    """

    kind: ClassVar[str] = "LORA"

    rank: int
    alpha: float
    dropout: float = 0.0
    rslora: bool = False
    targets: tuple[str, ...] = ()
    base: str | None = None

    @property
    def scale(self) -> float:
        """What A B is multiplied by."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], path: Path) -> Self:
        """Read the content of `path`, an adapter_config.json.

        Raises:
            DataError: numbers are missing or none, or it asks for what is not supported; all at once.
        """
        problems = list(_lora_problems(raw, path))
        if problems:
            raise DataError(problems)
        named = raw.get("target_modules")
        return cls(
            rank=raw["r"],
            alpha=raw["lora_alpha"],
            dropout=raw.get("lora_dropout") or 0.0,
            rslora=bool(raw.get("use_rslora")),
            targets=tuple(sorted(named)) if isinstance(named, list) else (),
            base=_base(raw),
        )

    def to_dict(self) -> dict[str, Any]:
        """The content of an adapter_config.json that PEFT reads."""
        return {
            **_common(self),
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": self.dropout,
            "use_rslora": self.rslora,
            "target_modules": list(self.targets),
            "bias": "none",
            "fan_in_fan_out": False,
            "init_lora_weights": True,
            "modules_to_save": None,
        }


@dataclass(frozen=True)
class PrefixSettings:
    """Keys and values in front of every document (Li and Liang, arXiv 2101.00190).

    Attributes:
        tokens: length of the prefix.
        layers: decoder layers.
        kv_heads: key heads.
        width: numbers in the keys of one token: kv_heads * head_dim.
        projection: width inside the network that computes the prefix in training; None: it is trained itself.
        base: as in `LoraSettings`.
    """

    kind: ClassVar[str] = "PREFIX_TUNING"

    tokens: int
    layers: int
    kv_heads: int
    width: int
    projection: int | None = None
    base: str | None = None

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], path: Path) -> Self:
        """Read the content of `path`, an adapter_config.json.

        Raises:
            DataError: numbers are missing or none; all at once.
        """
        names = ("num_virtual_tokens", "num_layers", "num_attention_heads", "token_dim")
        if raw.get("prefix_projection"):
            names = (*names, "encoder_hidden_size")
        problems = [found for name in names for found in _not_positive(raw, name, path)]
        problems += _base_problems(raw, path)
        if problems:
            raise DataError(problems)
        tokens, layers, heads, width = (raw[name] for name in names[:4])
        projection = raw.get("encoder_hidden_size") if raw.get("prefix_projection") else None
        return cls(tokens, layers, heads, width, projection, _base(raw))

    def to_dict(self) -> dict[str, Any]:
        """The content of an adapter_config.json that PEFT reads."""
        return {
            **_common(self),
            "num_virtual_tokens": self.tokens,
            "num_layers": self.layers,
            "num_attention_heads": self.kv_heads,
            "token_dim": self.width,
            "num_transformer_submodules": 1,
            "prefix_projection": self.projection is not None,
            "encoder_hidden_size": self.projection or self.width,
        }


AdapterSettings = LoraSettings | PrefixSettings
_KINDS: dict[str, type[LoraSettings] | type[PrefixSettings]] = {
    kind.kind: kind for kind in (LoraSettings, PrefixSettings)
}


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds a PEFT adapter and not a whole model."""
    return (folder / ADAPTER_CONFIG).is_file()


def read_adapter_settings(folder: Path) -> AdapterSettings:
    """What the adapter in a folder is.

    Raises:
        DataError: there is none, its adapter_config.json cannot be read, or it is of a kind that is not
            supported.
    """
    path = folder / ADAPTER_CONFIG
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(_no_adapter(folder)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(Problem((str(path),), f"cannot be read ({error})", "Copy the file again.")) from None
    if not isinstance(raw, dict):
        raise DataError(Problem((str(path),), "is not a JSON object", "Copy the file again."))
    kind = _KINDS.get(str(raw.get("peft_type")))
    if kind is None:
        msg = f"got {str(raw.get('peft_type'))[:60]!r}, expected {' or '.join(_KINDS)}"
        raise DataError(
            Problem((str(path), "peft_type"), msg, "Use an adapter made by LoRA or prefix tuning.")
        )
    return kind.from_dict(raw, path)


def _lora_problems(raw: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    yield from _not_positive(raw, "r", path)
    yield from _base_problems(raw, path)
    alpha, dropout = raw.get("lora_alpha"), raw.get("lora_dropout") or 0.0
    if not _is_number(alpha) or alpha <= 0:
        yield _problem(path, "lora_alpha", f"got {show(alpha)}, expected a number above 0")
    if not _is_number(dropout) or not 0 <= dropout < 1:
        yield _problem(path, "lora_dropout", f"got {show(dropout)}, expected a share below 1")
    if not isinstance(raw.get("use_rslora"), bool | None):
        yield _problem(path, "use_rslora", f"got {show(raw['use_rslora'])}, expected true or false")
    named = raw.get("target_modules")
    if isinstance(named, list) and not all(isinstance(name, str) for name in named):
        yield _problem(path, "target_modules", f"got {show(named)}, expected names of layers")
    for name in _LORA_EXTRAS:
        if raw.get(name):
            msg = f"got {str(raw[name])[:80]}, which is not supported"
            yield _problem(path, name, msg, "Merge the adapter into its base with the tool that made it.")
    if raw.get("init_lora_weights", True) not in _PLAIN_STARTS:
        msg = f"got {str(raw['init_lora_weights'])[:80]!r}, which goes with a changed base model"
        yield _problem(path, "init_lora_weights", msg, "Convert it to plain LoRA with the tool that made it.")
    if raw.get("bias", "none") != "none":
        msg = f"got {str(raw['bias'])[:80]!r}, expected 'none': trained biases are not supported"
        yield _problem(path, "bias", msg, "Merge the adapter into its base with the tool that made it.")


def _base_problems(raw: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """A base that no file system and no hub can have."""
    base = raw.get("base_model_name_or_path")
    if isinstance(base, str) and ("\0" in base or printable(base) != base):
        yield _problem(path, "base_model_name_or_path", f"got {show(base)}, expected a folder or a hub name")


def _not_positive(raw: Mapping[str, Any], name: str, path: Path) -> Iterator[Problem]:
    value = raw.get(name)
    if type(value) is not int or not 1 <= value <= _LARGEST_SIZE:
        msg = f"got {show(value)}, expected a whole number between 1 and {_LARGEST_SIZE}"
        yield _problem(path, name, msg)


def _is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that a float can hold; NaN and the infinities are none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max


def _problem(path: Path, name: str, msg: str, hint: str = "Copy the file that the tool wrote.") -> Problem:
    return Problem((str(path), name), msg, hint)


def _common(settings: AdapterSettings) -> dict[str, Any]:
    return {
        "peft_type": settings.kind,
        "task_type": "CAUSAL_LM",
        **_base_fields(settings.base),
        "inference_mode": True,
    }


def _base_fields(base: str | None) -> dict[str, Any]:
    """PEFT writes the revision of a hub name in a field of its own."""
    name = _HUB_NAME.fullmatch(base) if base else None
    if name is None:
        return {"base_model_name_or_path": base, "revision": None}
    return {"base_model_name_or_path": name["repository"], "revision": name["revision"]}


def _base(raw: Mapping[str, Any]) -> str | None:
    base, revision = raw.get("base_model_name_or_path"), raw.get("revision")
    if not isinstance(base, str) or not base:
        return None
    return f"{base}@{revision}" if isinstance(revision, str) and _HUB_NAME.fullmatch(base) else base


def _no_adapter(folder: Path) -> Problem:
    for name in ("lora_config.json", "prefix_config.json"):
        if (folder / name).is_file():
            msg = f"has {name} but no {ADAPTER_CONFIG}; adapters in PaddleNLP's layout are not read"
            return Problem((str(folder),), msg, "Train it again here, or convert it to a PEFT adapter.")
    return Problem((str(folder),), f"has no {ADAPTER_CONFIG}, expected a PEFT adapter", "Name its folder.")
