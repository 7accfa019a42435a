"""The folder of an adapter: what it is, and whether its files are there. Reads no tensor."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer.config.adapters import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    PREFIX_ENCODER,
    AdapterSettings,
    LoraSettings,
    read_adapter_settings,
)
from trainer.config.chat_templates import FILES as TEMPLATE_FILES
from trainer.config.preflight.folder import FolderError, check_if_there, problem_of
from trainer.config.preflight.model import TOKENIZER_SIDE_FILES, TOKENIZERS
from trainer.config.preflight.paths import Finder
from trainer.config.problems import DataError, Problem

#: Files beside a model or an adapter that go with it when it is merged.
TOKENIZER_FILES = (*(name for names in TOKENIZERS for name in names), *TOKENIZER_SIDE_FILES, *TEMPLATE_FILES)

_FIELDS = {"lora_path": "LORA", "prefix_path": "PREFIX_TUNING"}


def check_adapter(folder: Path, finder: Finder, name: str) -> tuple[AdapterSettings | None, list[Problem]]:
    """What the adapter in `folder` is; None with the reasons when it cannot be used as argument `name`."""
    try:
        check_if_there(folder, (ADAPTER_CONFIG, ADAPTER_WEIGHTS, PREFIX_ENCODER, *TOKENIZER_FILES), finder)
    except (FolderError, OSError) as error:
        return None, [problem_of((name,), error)]
    try:
        settings = read_adapter_settings(folder)
    except DataError as error:
        return None, [replace(problem, loc=(name, *problem.loc[1:])) for problem in error.problems]
    weights = folder / ADAPTER_WEIGHTS
    if not weights.is_file() or not weights.stat().st_size:
        msg = f"{folder} has no {ADAPTER_WEIGHTS}; pickled adapters are not read"
        return None, [Problem((name,), msg, "Copy the whole adapter, saved as safetensors.")]
    wanted = _FIELDS.get(name, settings.kind)
    if settings.kind != wanted:
        msg = f"{folder} holds {settings.kind}, expected {wanted}"
        return None, [Problem((name,), msg, "Name another folder, or change lora and prefix_tuning.")]
    return settings, []


def adapter_changes(settings: AdapterSettings, folder: Path) -> dict[str, Any]:
    """The arguments that a saved adapter decides."""
    if isinstance(settings, LoraSettings):
        alpha = int(settings.alpha) if float(settings.alpha).is_integer() else settings.alpha
        return {
            "lora": True,
            "lora_path": str(folder),
            "lora_rank": settings.rank,
            "lora_alpha": alpha,
            "rslora": settings.rslora,
            "target_modules": list(settings.targets) or None,
        }
    return {"prefix_tuning": True, "prefix_path": str(folder), "num_prefix_tokens": settings.tokens}
