"""A model that is split over ranks computes what the whole one does: outcomes, logits and every gradient."""

from typing import Any

import numpy as np
import paddle
import pytest

from tests.ranks import run_ranks
from tests.trainer.models.split_models import (
    assert_close,
    bloom,
    gemma,
    gradients,
    model_of,
    numbers,
    on_rank,
    placement_of,
    whole_of,
)
from trainer.models.configuration import ModelConfig
from trainer.models.passes import LossPass
from trainer.ops.packing import Packing
from trainer.tools.generate import generate_ids

CASES = {
    "gemma, key heads split": (2, gemma()),
    "gemma, one key head": (2, gemma(num_key_value_heads=1)),
    "gemma, two key heads on four ranks": (4, gemma(num_key_value_heads=2)),
    "gemma, three key heads on two ranks": (2, gemma(num_attention_heads=6, num_key_value_heads=3)),
    "gemma, fused, biases, a head of its own": (
        2,
        gemma(
            fuse_attention_qkv=True, fuse_attention_ffn=True, attention_bias=True, tie_word_embeddings=False
        ),
    ),
    "gemma, fused, one key head, biases": (
        2,
        gemma(num_key_value_heads=1, fuse_attention_qkv=True, attention_bias=True, alibi=True),
    ),
    "bloom, odd vocabulary, six heads": (2, bloom()),
    "bloom on three ranks, a head of its own": (3, bloom(tie_word_embeddings=False)),
    "bloom on four ranks": (4, bloom(num_attention_heads=12)),
}


@pytest.mark.parametrize("sequence", [False, True], ids=["tensors", "sequences"])
@pytest.mark.parametrize("case", CASES)
def test_a_split_model_computes_what_the_whole_one_does(case: str, sequence: bool):
    ranks, config = CASES[case]
    check(ranks, sequence, config)


def check(ranks: int, sequence: bool, config: ModelConfig) -> None:
    model = model_of(config)
    expected, slopes = numbers(model), whole_of([gradients(model)])
    found = run_ranks(ranks, on_rank, ranks, sequence, config)
    for outcomes, _ in found:
        assert_close(outcomes, expected)
    assert_close(whole_of([parts for _, parts in found]), slopes)


WAYS: list[dict[str, Any]] = [{}, {"use_cache": False}, {"num_beams": 2}, {"do_sample": True, "seed": 4}]
PROMPTS = [[5, 6, 7], [8], [9, 10]]


def generated(sequence: bool | None, config: ModelConfig) -> list[list[list[int]]]:
    """Texts in several ways, of one process or of one of two ranks."""
    model = model_of(config) if sequence is None else model_of(config, placement_of(2, sequence))
    return [generate_ids(model, PROMPTS, 5, (), **way) for way in WAYS]


@pytest.mark.parametrize("config", [gemma(num_key_value_heads=1), bloom()], ids=["gemma", "bloom"])
@pytest.mark.parametrize("sequence", [False, True], ids=["tensors", "sequences"])
def test_a_split_model_writes_what_the_whole_one_does(config: ModelConfig, sequence: bool):
    expected = generated(None, config)
    assert run_ranks(2, generated, sequence, config) == [expected, expected]


def trained_with_dropout(sequence: bool, config: ModelConfig) -> tuple[list[float], Any]:
    """Losses of three passes, the first two with dropout, and the gradients of the first."""
    model = model_of(config, placement_of(2, sequence))
    ids = paddle.to_tensor(np.arange(12).reshape(1, 12))
    work = LossPass(ids[0], Packing.of(ids, None, None), ids[0])
    model.train()
    first = model.run(work)
    first.sum().backward()
    slopes = {
        name: (weight.region, weight.disk_shape, weight.turned(weight.parameter.grad).numpy())
        for name, weight in model.parameter_names().items()
        if weight.parameter.grad is not None
    }
    second = model.run(work)
    model.eval()
    return [float(loss[0]) for loss in (first, second, model.run(work))], slopes


@pytest.mark.parametrize(
    ("config", "sequence"),
    [
        (bloom(hidden_dropout=0.3), False),
        (bloom(hidden_dropout=0.3, attention_dropout=0.3), True),
        (gemma(attention_dropout=0.3, num_key_value_heads=1), False),
    ],
)
def test_dropout_drops_the_same_of_what_all_ranks_have(config: ModelConfig, sequence: bool):
    found = run_ranks(2, trained_with_dropout, sequence, config)
    assert found[0][0] == found[1][0]
    assert len(set(found[0][0])) == 3
    whole_of([slopes for _, slopes in found])
