"""Adapters on a model that is split over ranks compute what they do on the whole model, and begin alike."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest

from tests.ranks import run_ranks
from tests.trainer.models.split_models import (
    Arrays,
    Parts,
    assert_close,
    bloom,
    gemma,
    gradients,
    model_of,
    numbers,
    placement_of,
    whole_of,
)
from trainer.config.adapters import LoraSettings
from trainer.models import CausalLM
from trainer.models.configuration import ModelConfig
from trainer.models.passes import LossPass
from trainer.ops.packing import Packing
from trainer.peft.loading import load_adapter
from trainer.peft.lora.adapter import add_lora
from trainer.peft.prefix.adapter import add_prefix

LORA = LoraSettings(rank=3, alpha=3, rslora=True)
CASES = {
    "gemma": gemma(),
    "gemma, one key head, a head of its own": gemma(num_key_value_heads=1, tie_word_embeddings=False),
    "gemma, fused": gemma(fuse_attention_qkv=True, fuse_attention_ffn=True),
    "gemma, fused, one key head": gemma(num_key_value_heads=1, fuse_attention_qkv=True),
    "bloom": bloom(),
}


def with_lora(model: CausalLM, settings: LoraSettings = LORA) -> None:
    """LoRA on all layers, in which no matrix is zero."""
    adapter = add_lora(model, settings, 11)
    for number, weight in enumerate(adapter.weights().values()):
        if weight.parameter.shape[0] == LORA.rank:
            drawn = np.random.default_rng(number).normal(0.0, 0.2, weight.disk_shape)
            weight.fill(paddle.to_tensor(drawn.astype(np.float32)))


def with_prefix(model: CausalLM) -> None:
    add_prefix(model, 3, seed=11)


def with_projected_prefix(model: CausalLM) -> None:
    add_prefix(model, 3, 5, seed=11)


ADAPTERS = {"lora": with_lora, "prefix": with_prefix, "projected prefix": with_projected_prefix}


def of_model(model: CausalLM, adapter: str) -> tuple[Arrays, Parts, Parts]:
    """Outcomes, gradients of the adapter and its tensors."""
    ADAPTERS[adapter](model)
    tensors = {
        name: (weight.region, weight.disk_shape, weight.turned(weight.parameter).numpy())
        for name, weight in model.trained_weights().items()
    }
    return numbers(model), gradients(model), tensors


def on_rank(ranks: int, sequence: bool, config: ModelConfig, adapter: str) -> tuple[Arrays, Parts, Parts]:
    return of_model(model_of(config, placement_of(ranks, sequence)), adapter)


@pytest.mark.parametrize("sequence", [False, True], ids=["tensors", "sequences"])
@pytest.mark.parametrize(
    ("case", "adapter"),
    [
        *((case, "lora") for case in CASES),
        ("gemma", "prefix"),
        ("gemma, one key head, a head of its own", "projected prefix"),
        ("bloom", "projected prefix"),
    ],
)
def test_an_adapter_computes_on_ranks_what_it_does_on_the_whole_model(
    case: str, adapter: str, sequence: bool
):
    expected, slopes, tensors = of_model(model_of(CASES[case]), adapter)
    found = run_ranks(2, on_rank, 2, sequence, CASES[case], adapter)
    whole = whole_of([parts for _, _, parts in found])
    for name, (_, _, array) in tensors.items():
        np.testing.assert_array_equal(whole[name], array)
    for outcomes, _, _ in found:
        assert_close(outcomes, expected)
    assert_close(whole_of([parts for _, parts, _ in found]), whole_of([slopes]))


def loaded_on_rank(config: ModelConfig, folder: Path) -> Arrays:
    model = model_of(config, placement_of(2, False))
    load_adapter(model, folder)
    return numbers(model)


@pytest.mark.parametrize("adapter", ["lora", "projected prefix"])
def test_a_saved_adapter_is_loaded_onto_ranks(adapter: str, tmp_path: Path):
    model = model_of(CASES["gemma"])
    ADAPTERS[adapter](model)
    assert model.adapter is not None
    model.adapter.save(tmp_path)
    for outcomes in run_ranks(2, loaded_on_rank, CASES["gemma"], tmp_path):
        assert_close(outcomes, numbers(model))


def trained_with_dropout(sequence: bool) -> tuple[list[float], Parts]:
    """Two losses of a rank in training, and gradients."""
    model = model_of(CASES["gemma"], placement_of(2, sequence))
    with_lora(model, replace(LORA, dropout=0.4))
    model.train()
    ids = paddle.to_tensor(np.arange(12))
    work = LossPass(ids, Packing.of(ids.reshape([1, 12]), None, None), ids)
    return [float(model.run(work)[0]) for _ in range(2)], gradients(model)


@pytest.mark.parametrize("sequence", [False, True], ids=["tensors", "sequences"])
def test_dropout_before_an_adapter_drops_the_same_of_what_all_ranks_have(sequence: bool):
    (one, some), (other, more) = run_ranks(2, trained_with_dropout, sequence)
    assert one == other
    assert one[0] != one[1]
    whole_of([some, more])
