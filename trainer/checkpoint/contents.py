"""What a checkpoint and the final model consist of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.find import STATE_FILE
from trainer.checkpoint.optimizer_state import PartReader, optimizer_files
from trainer.checkpoint.pieces import Contents, TensorFiles, held_pieces, weight_pieces
from trainer.config.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, PREFIX_ENCODER
from trainer.events import finite
from trainer.files import write_json
from trainer.models.directory import CONFIG_FILE, GENERATION_FILE
from trainer.models.weights import SINGLE_FILE, Weight, WeightMap
from trainer.models.weights_save import MAX_SHARD_BYTES
from trainer.peft.lora.adapter import LoraAdapter
from trainer.peft.prefix.adapter import PrefixAdapter
from trainer.peft.prefix.encoder import PROMPT

if TYPE_CHECKING:
    from trainer.models.base import CausalLM
    from trainer.parallel.update import Updater
    from trainer.tokenizers import Tokenizer

_PYTORCH, _ENDING = "pt", ".safetensors"


def checkpoint_contents(
    model: CausalLM,
    update: Updater,
    tokenizer: Tokenizer,
    state: Mapping[str, Any],
    *,
    with_optimizer: bool = True,
    models: Mapping[str, CausalLM] | None = None,
) -> Contents:
    """What this process puts into a checkpoint.

    Args:
        model: what of the model is here.
        update: changes it.
        tokenizer: saved beside it.
        state: content of ``trainer_state.json``.
        with_optimizer: without its state the run can go on only with a fresh one.
        models: more models, by the folder of the checkpoint that they go to.
    """
    contents = model_contents(model, update, tokenizer)
    if with_optimizer:
        contents.tensors.append(optimizer_files(update))
    for folder, other in (models or {}).items():
        _add_model(contents, other, None, f"{folder}/")
    contents.others.append(_json_writer(STATE_FILE, finite(dict(state))))
    return contents


def model_contents(model: CausalLM, update: Updater | None, tokenizer: Tokenizer) -> Contents:
    """What this process puts into a model directory, or a PEFT adapter when the model has one.

    Args:
        update: what changed the model; None when nothing did.
    """
    contents = Contents()
    if model.adapter is None:
        _add_model(contents, model, update, "")
    else:
        _add_adapter(contents, model.adapter, update)
    contents.others.append(tokenizer.save)
    return contents


def load_trained_weights(update: Updater, directory: Path) -> None:
    """Set what is trained to what a checkpoint of the same run holds, in the layout of this process.

    Raises:
        DataError: it cannot be read, or belongs to another model.
    """
    adapter: Any = update.model.adapter
    file = SINGLE_FILE if adapter is None else next(iter(_adapter_files(adapter)))
    reader = PartReader(directory, file.removesuffix(_ENDING), update.model.trained_weights())
    for held in update.weights():
        if (values := reader(held.weight, held.kind, held.span)) is not None:
            held.put(values)


def _add_model(contents: Contents, model: CausalLM, update: Updater | None, folder: str) -> None:
    weights = model.parameter_names()
    stem = folder + SINGLE_FILE.removesuffix(_ENDING)
    pieces = weight_pieces(weights.values()) if update is None else held_pieces(update.weights(weights))
    contents.tensors.append(TensorFiles(stem, _PYTORCH, tuple(pieces), MAX_SHARD_BYTES))
    config = model.config.to_dict()
    config["dtype" if "dtype" in config else "torch_dtype"] = model.dtype
    contents.others.append(_json_writer(folder + CONFIG_FILE, config))
    if model.generation_config is not None:
        contents.others.append(_json_writer(folder + GENERATION_FILE, model.generation_config))


def _add_adapter(contents: Contents, adapter: Any, update: Updater | None) -> None:
    for file, weights in _adapter_files(adapter).items():
        if update is None or (file == ADAPTER_WEIGHTS and isinstance(adapter, PrefixAdapter)):
            pieces = weight_pieces(weights.values())
        else:
            pieces = held_pieces(update.weights(weights), full_precision=True)
        contents.tensors.append(TensorFiles(file.removesuffix(_ENDING), _PYTORCH, tuple(pieces)))
    contents.others.append(_json_writer(ADAPTER_CONFIG, adapter.settings.to_dict()))


def _adapter_files(adapter: LoraAdapter | PrefixAdapter) -> dict[str, WeightMap]:
    """The tensors of an adapter, by file."""
    if isinstance(adapter, LoraAdapter) or not adapter.encoder.projected:
        return {ADAPTER_WEIGHTS: adapter.weights()}
    computed = adapter.encoder()
    return {
        PREFIX_ENCODER: adapter.weights(),
        ADAPTER_WEIGHTS: {PROMPT: Weight(PROMPT, computed, transposed=False)},
    }


def _json_writer(name: str, content: Mapping[str, Any]) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content)

    return write
