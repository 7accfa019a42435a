"""Where a run begins: at a checkpoint that was named, at the newest one of its folder, or fresh."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.directory import remove_directory, remove_leftovers
from trainer.checkpoint.find import Checkpoint, checkpoint_damage, find_checkpoint, list_checkpoints
from trainer.checkpoint.save import read_state
from trainer.config.fields.preference import DpoFields, KtoFields
from trainer.config.problems import ConfigError, DataError, Problem
from trainer.loop.state import TrainState

if TYPE_CHECKING:
    from trainer.config.schema import RunConfig
    from trainer.events import EventWriter

log = logging.getLogger(__name__)

#: Arguments that decide how a run goes on; a resumed run warns when they are not the checkpoint's.
COMPARED = (
    "model_name_or_path",
    "dataloader_drop_last",
    "num_train_epochs",
    "max_steps",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "warmup_ratio",
    "num_cycles",
    "lr_end",
    "power",
    "decay_steps",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "lora_plus_scale",
    "lora_dropout",
    "src_length",
    "max_length",
    "chat_template",
    "zero_padding",
    "greedy_zero_padding",
    "lazy",
    "neftune",
    "neftune_noise_alpha",
    "seed",
    "data_seed",
    "max_seq_len",
    "max_prompt_len",
    *DpoFields.model_fields,
    *KtoFields.model_fields,
)


def starting_checkpoint(config: RunConfig, events: EventWriter) -> Checkpoint | None:
    """The checkpoint to go on from, or None for a fresh start.

    `resume_from_checkpoint` comes first; a later checkpoint that such a run has saved in output_dir since
    comes before it, so that a retry does not start over. Otherwise it is the newest whole checkpoint of
    output_dir. With overwrite_output_dir the checkpoints found there are removed.

    Raises:
        ConfigError: `resume_from_checkpoint` is not a whole checkpoint.
    """
    output_dir = Path(config.output_dir)
    remove_leftovers(output_dir)

    def warn(checkpoint: Checkpoint, damage: str) -> None:
        events.warn(
            Problem(
                ("output_dir", checkpoint.name),
                f"{checkpoint.path} is not used: {damage}",
                "It was not written to its end, or was damaged later.",
            )
        )

    if config.resume_from_checkpoint:
        named = _named_checkpoint(Path(config.resume_from_checkpoint).resolve())
        newest = find_checkpoint(output_dir, warn)
        continued = newest is not None and read_state(newest.path).get("resumed_from") == str(named.path)
        return newest if continued else named
    if config.overwrite_output_dir:
        for checkpoint in list_checkpoints(output_dir):
            log.info("overwrite_output_dir: removing %s", checkpoint.path)
            remove_directory(checkpoint.path)
        return None
    return find_checkpoint(output_dir, warn)


def load_state(checkpoint: Checkpoint) -> TrainState:
    """The state that a checkpoint holds.

    Raises:
        DataError: its ``trainer_state.json`` was not written by this trainer.
    """
    try:
        return TrainState.from_dict(read_state(checkpoint.path))
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{checkpoint.path}: trainer_state.json lacks {error}, so it cannot be resumed"
        ) from error


def run_settings(config: RunConfig, data_fingerprint: str, data_ways: int = 1) -> dict[str, Any]:
    """The settings that a checkpoint records, to be compared when it is resumed.

    How the rows of a step are dealt out, to `data_ways` processes and micro-batches, changes nothing.
    """
    known = dict.fromkeys(name for name in COMPARED if name in type(config).model_fields)
    rows = config.per_device_train_batch_size * config.gradient_accumulation_steps * data_ways
    counted = {"rows in a step": rows, "training data": data_fingerprint}
    return {name: getattr(config, name) for name in known} | counted


def changed_settings(before: dict[str, Any], now: dict[str, Any]) -> Problem | None:
    """A warning that names every setting that changed since the checkpoint, or None."""
    changes = [
        f"{name} ({before[name]} before, {now[name]} now)"
        for name in now
        if name in before and before[name] != now[name]
    ]
    if not changes:
        return None
    return Problem(
        ("resume_from_checkpoint",),
        f"this run goes on from a checkpoint that was made with other settings: {'; '.join(changes)}",
        "The result is not that of one uninterrupted run.",
    )


def _named_checkpoint(path: Path) -> Checkpoint:
    damage = checkpoint_damage(path) if path.is_dir() else "there is no such directory"
    if damage is None:
        return Checkpoint(path, int(read_state(path).get("global_step", 0)))
    raise ConfigError(
        Problem(
            ("resume_from_checkpoint",),
            f"got {path}, expected a whole checkpoint: {damage}",
            "Name a checkpoint-<step> directory of an earlier run, or leave it out.",
        )
    )
