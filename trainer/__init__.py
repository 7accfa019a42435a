"""The training library: usable alone, knows nothing of jobs.

`load_model`, `save_model` and `load_tokenizer` are the short way in. Importing this package does not import
Paddle; the first of these calls does, after preparing the process for CPU work (`trainer.ops.host`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.models import CausalLM
    from trainer.tokenizers import Tokenizer

__all__ = ["load_model", "load_tokenizer", "save_model"]


def load_model(
    directory: str | Path,
    dtype: str = "float32",
    options: Mapping[str, Any] | None = None,
    base: str | Path | None = None,
) -> CausalLM:
    """Load a model directory, an adapter directory with its base model, or a model by its name on the Hugging
    Face hub; see `trainer.models.load_model`, `trainer.peft.loading.load_adapted_model` and `trainer.hub`.

    Args:
        base: where the base model of an adapter lies; by default where its adapter_config.json says.
    """
    from trainer.config.adapters import is_adapter
    from trainer.hub import model_folder
    from trainer.ops.host import import_paddle

    folder = model_folder(directory)
    import_paddle()
    if is_adapter(folder):
        from trainer.peft.loading import load_adapted_model

        return load_adapted_model(folder, dtype, options, base)
    from trainer.models import load_model

    return load_model(folder, dtype, options)


def save_model(model: CausalLM, directory: str | Path) -> None:
    """Write a model directory that Hugging Face's tools load, or a PEFT adapter when the model has one; see
    `trainer.models.save_model` and `trainer.peft`.
    """
    if model.adapter is not None:
        model.adapter.save(Path(directory))
        return
    from trainer.models import save_model

    save_model(model, directory)


def load_tokenizer(directory: str | Path) -> Tokenizer:
    """Load the tokenizer of a model directory, or of a model on the Hugging Face hub; see
    `trainer.tokenizers.load_tokenizer` and `trainer.hub`. An adapter without one has that of its base model.
    """
    from trainer.config.adapters import is_adapter, read_adapter_settings
    from trainer.config.preflight.hub import Part
    from trainer.config.preflight.model import has_tokenizer
    from trainer.hub import model_folder
    from trainer.tokenizers import load_tokenizer

    folder = model_folder(directory, Part.TOKENIZER)
    if is_adapter(folder) and not has_tokenizer(folder):
        base = read_adapter_settings(folder).base
        folder = model_folder(base, Part.TOKENIZER) if base else folder
    return load_tokenizer(folder)
