"""Adapters from folders: onto a model that is there, or together with the base model they name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.config.adapters import ADAPTER_CONFIG, AdapterSettings, LoraSettings, read_adapter_settings
from trainer.config.problems import DataError, Problem
from trainer.models import CausalLM, load_model
from trainer.peft.lora.adapter import LoraAdapter, load_lora
from trainer.peft.prefix.adapter import PrefixAdapter, load_prefix


def load_adapter(model: CausalLM, directory: Path) -> LoraAdapter | PrefixAdapter:
    """Put the adapter of a folder on its base model, which is frozen.

    Raises:
        DataError: there is none, its kind is not supported, or it does not fit the model.
    """
    settings = read_adapter_settings(directory)
    if isinstance(settings, LoraSettings):
        return load_lora(model, settings, directory)
    return load_prefix(model, settings, directory)


def load_adapted_model(
    directory: Path,
    dtype: str = "float32",
    options: Mapping[str, Any] | None = None,
    base: str | Path | None = None,
) -> CausalLM:
    """A base model with the adapter of a folder.

    Args:
        directory: of the adapter.
        dtype, options: of the base model, as `load_model` takes them; the adapter is float32.
        base: the folder or hub name of the base model; None: as adapter_config.json says.

    Raises:
        DataError: the base model is not where it should be, or one of the two cannot be used.
    """
    settings = read_adapter_settings(directory)
    model = load_model(base_folder(directory, settings, base), dtype, options)
    load_adapter(model, directory)
    model.eval()
    return model


def base_folder(directory: Path, settings: AdapterSettings, base: str | Path | None = None) -> Path:
    """Where the base model of an adapter lies.

    Raises:
        DataError: it is not said, or not there.
    """
    from trainer.hub import model_folder

    named = base or settings.base
    where = (str(directory), ADAPTER_CONFIG, "base_model_name_or_path")
    hint = "Give the folder of its base model (argument `base`, or model_name_or_path)."
    if named is None:
        raise DataError(Problem(where, "says no base model", hint))
    folder = model_folder(named)
    if not folder.is_dir():
        raise DataError(Problem(where, f"got {named}, which is no folder here", hint))
    return folder
