"""What is legal but surely unwanted, seen from the data and the length of the run."""

from collections.abc import Iterator

from trainer.config.estimate.estimate import Estimate
from trainer.config.estimate.parameters import trains_adapter
from trainer.config.estimate.tokens import is_packed
from trainer.config.problems import Problem
from trainer.config.schema import RunConfig, SftConfig, TaskConfig

MUCH_PADDING = 0.5
RATE_OF_ADAPTERS = 1e-4
LARGE_MODEL = 100_000_000
"""Smaller models are trained at higher rates."""


def doubts(config: TaskConfig, estimate: Estimate) -> Iterator[Problem]:
    """Warnings that an estimate gives rise to."""
    if not isinstance(config, RunConfig) or not config.do_train:
        return
    yield from _padding(config, estimate)
    yield from _rate(config, estimate)


def _padding(config: RunConfig, estimate: Estimate) -> Iterator[Problem]:
    """Padding costs no work here, for batches are packed; but batches of equal size are what a device is
    filled with.
    """
    train = (estimate.data or {}).get("train")
    if train is None or is_packed(config) or not isinstance(config, SftConfig):
        return
    if train.padding_share > MUCH_PADDING and train.packed_padding_share is not None:
        msg = f"false, and {train.padding_share:.0%} of a batch is padding: texts differ much in length"
        hint = f"Set it to true: then {train.packed_padding_share:.0%} is; batch sizes count packed rows."
        yield Problem(("zero_padding",), msg, hint)


def _rate(config: RunConfig, estimate: Estimate) -> Iterator[Problem]:
    """A rate that adapters are trained at ruins a whole large model within some steps."""
    large = (estimate.parameters or 0) >= LARGE_MODEL
    if large and not trains_adapter(config) and config.learning_rate >= RATE_OF_ADAPTERS:
        msg = f"got {config.learning_rate} with the whole model trained: such rates are for adapters"
        yield Problem(("learning_rate",), msg, "Use for example 3e-05, or set lora to true.")
