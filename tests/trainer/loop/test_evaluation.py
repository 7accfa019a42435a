import math
from pathlib import Path

import numpy as np
import paddle
import pytest

from trainer import load_model
from trainer.data.batches import Collator
from trainer.data.sft import IGNORE, Example
from trainer.loop.engine import SingleEngine
from trainer.loop.evaluation import EvaluationData, evaluate, perplexity


@pytest.fixture
def examples() -> list[Example]:
    random = np.random.default_rng(2)
    found = []
    for length in (4, 17, 9, 2, 11):
        ids = random.integers(4, 300, length + 1).astype(np.int32)
        labels = ids[1:].copy()
        labels[: length // 2] = IGNORE
        found.append(Example(ids[:-1], labels, cut=False, lost_turns=0))
    return found


def measure(
    directory: Path, examples: list[Example], batch_size: int, loss_only: bool = False
) -> dict[str, float]:
    model, collate = load_model(directory), Collator(0, "left")
    metrics = evaluate(
        SingleEngine(model),
        EvaluationData(examples, len(examples), loss_only),
        collate,
        batch_size,
        lambda: False,
    )
    assert metrics is not None
    return metrics


def test_metrics_are_those_of_all_label_tokens_computed_from_the_logits(
    tiny_gemma: Path, examples: list[Example]
) -> None:
    model, losses, hits = load_model(tiny_gemma), [], []
    for example in examples:
        logits = model(paddle.to_tensor(example.input_ids[None].astype("int64")))[0].numpy().astype("float64")
        for row, label in zip(logits, example.labels, strict=True):
            if label != IGNORE:
                losses.append(np.log(np.exp(row - row.max()).sum()) + row.max() - row[label])
                hits.append(row.argmax() == label)
    metrics = measure(tiny_gemma, examples, 2)
    assert metrics["eval_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert metrics["eval_accuracy"] == pytest.approx(np.mean(hits))
    assert metrics["eval_ppl"] == pytest.approx(math.exp(metrics["eval_loss"]))


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_the_batch_size_does_not_change_the_metrics(
    tiny_gemma: Path, examples: list[Example], batch_size: int
) -> None:
    expected, found = measure(tiny_gemma, examples, 2), measure(tiny_gemma, examples, batch_size)
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-6)
    assert found["eval_accuracy"] == expected["eval_accuracy"]


def test_only_the_loss_is_measured_when_that_is_asked_for(tiny_gemma: Path, examples: list[Example]) -> None:
    assert "eval_accuracy" not in measure(tiny_gemma, examples, 2, loss_only=True)


def test_a_stop_between_batches_gives_no_metrics(tiny_gemma: Path, examples: list[Example]) -> None:
    answers = iter([False, True])
    model = load_model(tiny_gemma)
    data = EvaluationData(examples, len(examples))
    found = evaluate(SingleEngine(model), data, Collator(0, "left"), 2, lambda: next(answers))
    assert found is None


@pytest.mark.parametrize("part", ["embed_tokens", "layers.1.self_attn.q_proj", "layers.0.mlp.up_proj"])
def test_broken_weights_show_in_the_loss(tiny_gemma: Path, examples: list[Example], part: str) -> None:
    model = load_model(tiny_gemma)
    weight = model.parameter_names()[f"model.{part}.weight"].parameter
    broken = weight.numpy()
    broken[-1, -1] = np.nan
    with paddle.no_grad():
        weight.set_value(broken)
    data = EvaluationData(examples, len(examples))
    metrics = evaluate(SingleEngine(model), data, Collator(0, "left"), 2, lambda: False)
    assert metrics is not None
    assert math.isnan(metrics["eval_loss"])


def test_perplexity_of_a_huge_loss_is_infinite() -> None:
    assert perplexity(1e6) == math.inf
