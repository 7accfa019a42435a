"""The measurement of a GPU, on a processor and with a tiny model: that it trains, and what it counts."""

import math

import pytest

from benchmarks.gpu_step import GEMMA_2B, measure, needed_flops

TINY = GEMMA_2B | {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 8,
}


def test_a_tiny_model_is_trained_and_timed() -> None:
    found = measure(TINY, rows=2, length=8, steps=2, product=64)
    assert found.tokens == 16
    assert len(found.losses) == 5
    assert found.losses[0] == pytest.approx(math.log(64), rel=0.1)
    assert found.losses[-1] < found.losses[0]
    assert found.step_s > 0
    assert found.peak > 0
    assert found.utilization > 0


def test_flops_are_those_of_weights_and_attention() -> None:
    weights = 16 * 8 * 6 + 3 * 16 * 32 + 16 * 64
    attention = 2 * 2 * 8 * 8 / 2
    assert needed_flops(TINY, 2, 8) == 6 * 16 * (weights + attention)


def test_gemma_2b_has_the_weights_of_its_name() -> None:
    per_token = needed_flops(GEMMA_2B, 1, 1) / 6
    assert per_token == pytest.approx(2.506e9, rel=0.001)
