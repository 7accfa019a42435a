"""Where a run stands: everything besides weights and optimizer moments that a resumed run needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.loop.objective import Measures


@dataclass
class TrainState:
    """The position and the history of a run; ``trainer_state.json`` holds it.

    Attributes:
        step: optimizer steps taken, the skipped ones included.
        schedule_step: optimizer steps that changed the weights; the learning rate follows these.
        epoch: whole epochs behind.
        consumed: rows (examples, or packs of them) consumed of the epoch after that; 0 exactly at the end of
            an epoch.
        epoch_rows: rows in one epoch; 0 while that is not known.
        tokens: input tokens trained on, padding not counted.
        padding: padding in the batches of these tokens; it costs no work.
        loss_sum: sum of the losses of all steps.
        interval_loss, interval_steps: the same sum, and its count, since the last logged line.
        interval_measures: sum and count of what else was measured since then, by name.
        skipped: steps skipped because fp16 gradients overflowed.
        best_metric, best_checkpoint: the best value of metric_for_best_model and the name of its checkpoint.
        resumed_from: the `resume_from_checkpoint` this run began with, if it was given.
        settings: the settings that decide how a run goes on; they are compared when it is resumed.
        loss_scaling: state of the fp16 loss scale; empty without one.
        log_history: every logged line and evaluation.
    """

    step: int = 0
    schedule_step: int = 0
    epoch: int = 0
    consumed: int = 0
    epoch_rows: int = 0
    tokens: int = 0
    padding: int = 0
    loss_sum: float = 0.0
    interval_loss: float = 0.0
    interval_steps: int = 0
    interval_measures: dict[str, tuple[float, float]] = field(default_factory=dict)
    skipped: int = 0
    best_metric: float | None = None
    best_checkpoint: str | None = None
    resumed_from: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    loss_scaling: dict[str, Any] = field(default_factory=dict)
    log_history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def epochs(self) -> float:
        """Epochs done, as a fraction."""
        return self.epoch + (self.consumed / self.epoch_rows if self.epoch_rows else 0.0)

    @property
    def padding_share(self) -> float:
        """The share of padding in all batches so far."""
        return self.padding / max(1, self.padding + self.tokens)

    @property
    def at_epoch_end(self) -> bool:
        return self.step > 0 and self.consumed == 0

    def begin_epoch(self, rows: int, batch_size: int, drop_last: bool) -> None:
        """Take up an epoch of `rows` rows, at its start or where a checkpoint left it.

        When nothing is left of it (the data shrank, or the batch size changed), the next one begins.
        """
        left = max(0, rows - self.consumed)
        if drop_last:
            left = left // batch_size * batch_size
        if self.consumed and not left:
            self.epoch += 1
            self.consumed = 0
            left = rows // batch_size * batch_size if drop_last else rows
        self.epoch_rows = self.consumed + left

    def advance(self, rows: int, tokens: int, padding: int = 0, *, ends_epoch: bool = False) -> None:
        """Count one step that consumed `rows` rows; rolls over when it ends the epoch."""
        self.step += 1
        self.tokens += tokens
        self.padding += padding
        self.consumed += rows
        if ends_epoch:
            self.epoch_rows = self.consumed
            self.epoch += 1
            self.consumed = 0

    def add_loss(self, loss: float, measures: Measures | None = None) -> None:
        """Count the loss, and what else was measured, of a step that changed the weights."""
        self.schedule_step += 1
        self.loss_sum += loss
        self.interval_loss += loss
        self.interval_steps += 1
        for name, (total, count) in (measures or {}).items():
            before = self.interval_measures.get(name, (0.0, 0.0))
            self.interval_measures[name] = before[0] + total, before[1] + count

    def evaluation(self, step: int) -> dict[str, Any] | None:
        """The evaluation made after `step`, or None."""
        for entry in reversed(self.log_history):
            if entry.get("step") == step and "eval_loss" in entry:
                return entry
        return None

    def as_dict(self, total_steps: int, num_train_epochs: float | None) -> dict[str, Any]:
        """The JSON form, with the names that readers of ``trainer_state.json`` know."""
        return {
            "global_step": self.step,
            "max_steps": total_steps,
            "epoch": self.epochs,
            "num_train_epochs": num_train_epochs,
            "best_metric": self.best_metric,
            "best_model_checkpoint": self.best_checkpoint,
            "num_input_tokens_seen": self.tokens,
            "num_padding_tokens": self.padding,
            "schedule_step": self.schedule_step,
            "skipped_steps": self.skipped,
            "position": {
                "epoch": self.epoch,
                "consumed_rows": self.consumed,
                "epoch_rows": self.epoch_rows,
            },
            "loss": {
                "sum": self.loss_sum,
                "interval_sum": self.interval_loss,
                "interval_steps": self.interval_steps,
                "interval_measures": self.interval_measures,
            },
            "resumed_from": self.resumed_from,
            "settings": self.settings,
            "loss_scaling": self.loss_scaling,
            "log_history": self.log_history,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> TrainState:
        """The state that `as_dict` described.

        Raises:
            KeyError, TypeError: a field is missing, so the file is not one of ours.
        """
        position, loss = stored["position"], stored["loss"]
        return cls(
            step=stored["global_step"],
            schedule_step=stored["schedule_step"],
            epoch=position["epoch"],
            consumed=position["consumed_rows"],
            epoch_rows=position["epoch_rows"],
            tokens=stored["num_input_tokens_seen"],
            padding=stored["num_padding_tokens"],
            loss_sum=loss["sum"],
            interval_loss=loss["interval_sum"],
            interval_steps=loss["interval_steps"],
            interval_measures={
                name: (pair[0], pair[1]) for name, pair in loss.get("interval_measures", {}).items()
            },
            skipped=stored["skipped_steps"],
            best_metric=stored["best_metric"],
            best_checkpoint=stored["best_model_checkpoint"],
            resumed_from=stored["resumed_from"],
            settings=dict(stored["settings"]),
            loss_scaling=dict(stored["loss_scaling"]),
            log_history=list(stored["log_history"]),
        )
