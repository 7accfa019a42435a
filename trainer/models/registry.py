"""The model families that can be trained, by the `model_type` of their config.json."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainer.config.known_models import KNOWN_MODELS
from trainer.config.problems import DataError, Problem
from trainer.models.base import CausalLM
from trainer.models.bloom.configuration import BloomConfig
from trainer.models.bloom.modeling import Bloom
from trainer.models.bloom.parts import ROLES as BLOOM_ROLES
from trainer.models.bloom.parts import SPLITS as BLOOM_SPLITS
from trainer.models.configuration import ModelConfig
from trainer.models.gemma.configuration import GemmaConfig
from trainer.models.gemma.modeling import Gemma
from trainer.models.gemma.parts import ROLES as GEMMA_ROLES
from trainer.models.gemma.parts import SPLITS as GEMMA_SPLITS
from trainer.models.linear import AnyLinear
from trainer.models.parts import Role, SplitRules


@dataclass(frozen=True)
class Family:
    """One model family.

    Attributes:
        config_class: reads and writes config.json.
        model_class: called with a configuration and a `Placement`, gives the part of a model that is here; it
            still needs its weights.
        roles: what each linear layer does, by the last part of its name.
        splits: how each tensor may be cut for tensor parallelism.
    """

    config_class: Any
    model_class: type[CausalLM]
    roles: Mapping[str, Role]
    splits: SplitRules


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer of a model: its path, the module, what it does."""

    path: str
    layer: AnyLinear
    role: Role


_FAMILIES: dict[str, Family] = {}


def register(family: Family) -> None:
    """Make a family known under the `model_type` of its configuration class.

    Raises:
        ValueError: the name is taken.
    """
    name = family.config_class.model_type
    if name in _FAMILIES:
        raise ValueError(f"got a second family {name!r}, expected a model_type of its own")
    _FAMILIES[name] = family


def known_families() -> tuple[str, ...]:
    """Every `model_type` that has a family."""
    return tuple(_FAMILIES)


def family(model_type: str) -> Family:
    """The family of a `model_type`.

    Raises:
        DataError: there is no such family.
    """
    if model_type not in _FAMILIES:
        known = ", ".join(_FAMILIES)
        msg = f"got model_type {model_type!r}, expected one of: {known}"
        raise DataError(
            Problem(("model_name_or_path", "config.json"), msg, "Choose a model of a known family.")
        )
    return _FAMILIES[model_type]


def known_config(name: str) -> ModelConfig:
    """The configuration that a published model has, such as "google/gemma-2b".

    Raises:
        KeyError: the name is not among `KNOWN_MODELS`.
    """
    known = KNOWN_MODELS[name]
    return family(known.model_type).config_class.from_dict(known.sizes)


def linear_layers(model: CausalLM) -> Iterator[LinearLayer]:
    """The linear layers of a model's decoder layers, in order."""
    roles = family(model.config.model_type).roles
    for path, layer in model.named_sublayers():
        if isinstance(layer, AnyLinear):
            yield LinearLayer(path, layer, roles[path.rpartition(".")[2]])


register(Family(GemmaConfig, Gemma, GEMMA_ROLES, GEMMA_SPLITS))
register(Family(BloomConfig, Bloom, BLOOM_ROLES, BLOOM_SPLITS))
