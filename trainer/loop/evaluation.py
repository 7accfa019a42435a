"""Evaluation: loss, accuracy and perplexity over the label tokens of a data set, and of generated answers."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainer.data.batches import Collator
from trainer.data.packing import Row
from trainer.files import write_json_lines
from trainer.loop.engine import Engine, evaluating, groups
from trainer.loop.objective import metrics_passes
from trainer.tools.generate import generate_ids, stop_ids

if TYPE_CHECKING:
    from trainer.config.records import SftRecord
    from trainer.tokenizers import Tokenizer

log = logging.getLogger(__name__)

GENERATED_FILE = "generated_output.json"
StopQuestion = Callable[[], bool]


@dataclass(frozen=True)
class Generation:
    """Answers to generate in an evaluation.

    Attributes:
        records: whose last answers are compared with generated ones.
        prompts: token ids in front of these answers.
        tokenizer: gives the generated text.
        max_new_tokens: longest answer.
        top_k, top_p: 1 takes the likeliest token; otherwise tokens are drawn.
        seed: of the draws.
        output: file for the generated texts; None: they are not kept.
    """

    records: Sequence[SftRecord]
    prompts: Sequence[Sequence[int]]
    tokenizer: Tokenizer
    max_new_tokens: int
    top_k: int = 1
    top_p: float = 1.0
    seed: int = 0
    output: Path | None = None


class Evaluation(Protocol):
    """Measures a model on data that it is not trained on; over many processes, in all of them."""

    def measure(self, engine: Engine, should_stop: StopQuestion) -> dict[str, float] | None:
        """The metrics, their names beginning with ``eval_``; None when `should_stop` said so in between."""
        ...


@dataclass(frozen=True)
class TokenEvaluation:
    """Evaluation by the label tokens of `data`; rows become batches of `batch_size` by `collate`."""

    data: EvaluationData
    collate: Collator
    batch_size: int

    def measure(self, engine: Engine, should_stop: StopQuestion) -> dict[str, float] | None:
        """See `evaluate`."""
        return evaluate(engine, self.data, self.collate, self.batch_size, should_stop)


@dataclass(frozen=True)
class EvaluationData:
    """What an evaluation looks at.

    Attributes:
        rows: for the loss.
        examples: how many examples the rows hold.
        loss_only: leave accuracy out.
        generation: answers to generate besides.
    """

    rows: Sequence[Row]
    examples: int
    loss_only: bool = False
    generation: Generation | None = None


def evaluate(
    engine: Engine,
    data: EvaluationData,
    collate: Collator,
    batch_size: int,
    should_stop: StopQuestion,
) -> dict[str, float] | None:
    """Metrics of the engine's model on `data`, or None when `should_stop` said so in between.

    Every label token counts the same, whatever batch it is in: ``eval_loss`` is the mean of all token losses,
    ``eval_accuracy`` the share of label tokens that are the model's first choice, ``eval_ppl`` =
    exp(eval_loss). With generation also ``eval_rouge1``, ``eval_rouge2``, ``eval_rougel``, ``eval_bleu4``.

    Args:
        collate, batch_size: how rows become batches.
        should_stop: asked again and again.
    """
    started = time.monotonic()
    metrics = _token_metrics(engine, data, collate, batch_size, should_stop)
    if metrics is not None and data.generation is not None:
        generated = _generation_metrics(engine, data.generation, batch_size, should_stop)
        metrics = None if generated is None else metrics | generated
    if metrics is None:
        return None
    seconds = time.monotonic() - started
    return metrics | {
        "eval_runtime": seconds,
        "eval_samples_per_second": data.examples / seconds,
        "eval_steps_per_second": math.ceil(len(data.rows) / batch_size) / seconds,
    }


def _token_metrics(
    engine: Engine, data: EvaluationData, collate: Collator, batch_size: int, should_stop: StopQuestion
) -> dict[str, float] | None:
    loss, correct, tokens = 0.0, 0, 0
    for group in groups(groups(data.rows, batch_size), engine.at_once):
        if should_stop():
            return None
        batches = [collate(rows) for rows in group]
        for outcome in engine.outcomes(metrics_passes(batches)):
            of_batch, right = (float(value) for value in outcome)
            loss += of_batch
            correct += int(right)
        tokens += sum(batch.label_tokens for batch in batches)
    accuracy = {} if data.loss_only else {"eval_accuracy": correct / tokens}
    return {"eval_loss": loss / tokens, **accuracy, "eval_ppl": perplexity(loss / tokens)}


def _generation_metrics(
    engine: Engine, generation: Generation, batch_size: int, should_stop: StopQuestion
) -> dict[str, float] | None:
    from trainer.loop.generation_metrics import generation_metrics

    model = engine.model
    tokenizer, stops = generation.tokenizer, stop_ids(model, generation.tokenizer)
    drawn = {"do_sample": True, "top_k": generation.top_k, "top_p": generation.top_p}
    how = {} if generation.top_k == 1 else drawn
    texts: list[str] = []
    for prompts in groups(generation.prompts, batch_size):
        if should_stop():
            return None
        with evaluating(model), engine.autocast():
            room, seed = generation.max_new_tokens, generation.seed
            ids = generate_ids(model, prompts, room, stops, first=len(texts), seed=seed, **how)
        texts += [tokenizer.decode(row) for row in ids]
    expected = [record.tgt[-1] for record in generation.records]
    if generation.output is not None:
        lines = [
            {"src": record.src[-1], "tgt": target, "output": text}
            for record, target, text in zip(generation.records, expected, texts, strict=True)
        ]
        write_json_lines(generation.output, lines)
        log.info("wrote the generated answers to %s", generation.output)
    return {f"eval_{name}": value for name, value in generation_metrics(texts, expected).items()}


def perplexity(loss: float) -> float:
    """exp(loss), infinite where that is too large for a float."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
