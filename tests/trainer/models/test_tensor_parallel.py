"""A model that is split over ranks computes what the whole one does: outcomes, logits and every gradient."""

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
    whole_of,
)
from trainer.models.configuration import ModelConfig

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
