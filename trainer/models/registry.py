"""The model families that can be trained, by the `model_type` of their config.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.config.problems import DataError, Problem
from trainer.models.base import CausalLM
from trainer.models.gemma.configuration import GemmaConfig
from trainer.models.gemma.modeling import Gemma


@dataclass(frozen=True)
class Family:
    """One model family.

    Attributes:
        config_class: reads and writes config.json.
        model_class: called with a configuration, gives a model whose parameters are all zero.
    """

    config_class: Any
    model_class: type[CausalLM]


FAMILIES: Mapping[str, Family] = {"gemma": Family(GemmaConfig, Gemma)}


def family(model_type: str) -> Family:
    """The family of a `model_type`.

    Raises:
        DataError: there is no such family.
    """
    if model_type not in FAMILIES:
        known = ", ".join(FAMILIES)
        msg = f"got model_type {model_type!r}, expected one of: {known}"
        raise DataError(
            Problem(("model_name_or_path", "config.json"), msg, "Choose a model of a known family.")
        )
    return FAMILIES[model_type]
