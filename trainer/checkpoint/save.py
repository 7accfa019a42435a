"""Writing and reading one checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.directory import whole_directory
from trainer.checkpoint.find import STATE_FILE, Checkpoint
from trainer.checkpoint.optimizer_state import save_optimizer
from trainer.config.problems import DataError
from trainer.events import finite
from trainer.files import write_json

if TYPE_CHECKING:
    import paddle

    from trainer.models.base import CausalLM
    from trainer.tokenizers import Tokenizer


def save_checkpoint(
    output_dir: Path,
    step: int,
    model: CausalLM,
    tokenizer: Tokenizer,
    optimizer: paddle.optimizer.AdamW | None,
    state: dict[str, Any],
    save_more: Callable[[Path], None] | None = None,
) -> Checkpoint:
    """Write ``checkpoint-<step>``; when this returns, it is whole and on the disk.

    Args:
        output_dir: the run's folder.
        step: optimizer steps taken.
        model, tokenizer: what the run holds.
        optimizer: None leaves its state out; the run can then go on only with a fresh one.
        state: content of ``trainer_state.json``.
        save_more: adds files to the checkpoint's directory.
    """
    from trainer import save_model

    checkpoint = Checkpoint(output_dir / f"checkpoint-{step}", step)
    with whole_directory(checkpoint.path) as directory:
        save_model(model, directory)
        tokenizer.save(directory)
        if optimizer is not None:
            save_optimizer(model, optimizer, directory)
        if save_more is not None:
            save_more(directory)
        write_json(directory / STATE_FILE, finite(state))
    return checkpoint


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The content of a checkpoint's ``trainer_state.json``.

    Raises:
        DataError: it is missing or not a JSON object.
    """
    path = checkpoint / STATE_FILE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise DataError(f"{path} is not a JSON object")
    return state
