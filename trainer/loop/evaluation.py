"""Evaluation: loss, accuracy and perplexity over the label tokens of a data set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import paddle

from trainer.data.batches import Collator
from trainer.data.sft import Example
from trainer.loop.precision import FullPrecision
from trainer.loop.step import batch_loss
from trainer.models.base import CausalLM


@paddle.no_grad()
def evaluate(
    model: CausalLM,
    examples: Sequence[Example],
    collate: Collator,
    batch_size: int,
    precision: FullPrecision,
    should_stop: Callable[[], bool],
    *,
    loss_only: bool = False,
) -> dict[str, float] | None:
    """Metrics of `model` on `examples`, or None when `should_stop` said so in between.

    Every label token counts the same, whatever batch it is in: ``eval_loss`` is the mean of all token losses,
    ``eval_accuracy`` the share of label tokens that are the model's first choice, ``eval_ppl`` =
    exp(eval_loss).

    Args:
        model, examples, collate, batch_size: what to evaluate, on what, and in which batches.
        precision: its autocast context is used.
        should_stop: asked before every batch.
        loss_only: leave ``eval_accuracy`` out.
    """
    started = time.monotonic()
    starts = range(0, len(examples), batch_size)
    loss, correct, tokens = 0.0, 0, 0
    model.eval()
    try:
        for start in starts:
            if should_stop():
                return None
            batch = collate(examples[start : start + batch_size])
            with precision.autocast():
                result = batch_loss(model, batch)
            loss += float(result.sum)
            correct += result.correct or 0
            tokens += batch.label_tokens
    finally:
        model.train()
    seconds = time.monotonic() - started
    accuracy = {} if loss_only else {"eval_accuracy": correct / tokens}
    return {
        "eval_loss": loss / tokens,
        **accuracy,
        "eval_ppl": perplexity(loss / tokens),
        "eval_runtime": seconds,
        "eval_samples_per_second": len(examples) / seconds,
        "eval_steps_per_second": len(starts) / seconds,
    }


def perplexity(loss: float) -> float:
    """exp(loss), infinite where that is too large for a float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
