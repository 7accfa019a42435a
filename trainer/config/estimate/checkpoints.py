"""What a run writes: bytes of a checkpoint, how many of them, and how many bytes lie there at once.

Counted are weights and optimizer state. What is small beside them (tokenizer, trainer_state.json, headers) is
not.
"""

import math
from dataclasses import dataclass

from trainer.config.estimate.activations import FLOAT32, Precision
from trainer.config.estimate.architecture import Architecture
from trainer.config.estimate.parameters import adapter_parameters, trains_adapter
from trainer.config.schema import DpoConfig, RunConfig


@dataclass(frozen=True)
class Checkpoints:
    """The files of a run.

    Attributes:
        weights_bytes: of the weights in one checkpoint, and of the final model.
        optimizer_bytes: of the optimizer state in one checkpoint.
        saves: how many checkpoints are written; None when the number of steps is not known.
        kept: how many are left at the end.
        total_bytes: most that lies in output_dir at a time; None when `saves` is.
    """

    weights_bytes: int
    optimizer_bytes: int
    saves: int | None
    kept: int | None
    total_bytes: int | None

    @property
    def bytes(self) -> int:
        """Of one checkpoint."""
        return self.weights_bytes + self.optimizer_bytes


def checkpoints(
    model: Architecture, config: RunConfig, device: str, steps: int | None, epochs: int | None
) -> Checkpoints:
    """What a training writes.

    Args:
        steps: optimizer steps of the run.
        epochs: ends of epochs in it, a started one among them.
    """
    precision = Precision.of(config, device)
    adapter = trains_adapter(config)
    trained = adapter_parameters(model, config) if adapter else model.parameters
    each = FLOAT32 if adapter else precision.weight
    state = 2 * FLOAT32 + (0 if adapter or not precision.master else FLOAT32)
    weights = trained * each
    if adapter and getattr(config, "prefix_projection", False):
        weights += 2 * model.layers * model.key_width * FLOAT32 * getattr(config, "num_prefix_tokens", 0)
    optimizer = 0 if config.ignore_save_lr_and_optim else trained * state
    if isinstance(config, DpoConfig) and config.ref_model_update_steps > 0 and not config.lora:
        optimizer += model.parameters * precision.weight
    saves = _saves(config, steps, epochs)
    if saves is None:
        return Checkpoints(weights, optimizer, None, None, None)
    most = saves
    if config.save_total_limit is not None:
        best = 1 if config.metric_for_best_model and config.do_eval else 0
        most = min(saves, max(config.save_total_limit, 1 + best))
    # A new checkpoint is complete before an old one goes; the final model comes last.
    at_once = max(min(saves, most + 1) * (weights + optimizer), most * (weights + optimizer) + weights)
    return Checkpoints(weights, optimizer, saves, most, at_once)


def _saves(config: RunConfig, steps: int | None, epochs: int | None) -> int | None:
    """There is always one after the last step, unless nothing is saved at all."""
    if config.save_strategy == "no":
        return 0
    if config.save_strategy == "epoch":
        return epochs
    return None if steps is None else math.ceil(steps / config.save_steps)
