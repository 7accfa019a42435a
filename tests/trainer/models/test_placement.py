"""A process that holds some stages of a model builds these and no others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest

from trainer.models import CausalLM, new_model
from trainer.models.bloom.configuration import BloomConfig
from trainer.models.configuration import ModelConfig
from trainer.models.gemma.configuration import GemmaConfig
from trainer.models.passes import LossPass
from trainer.models.placement import Placement
from trainer.ops.packing import Packing


def gemma(**fields: Any) -> GemmaConfig:
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "initializer_range": 0.2}
    return GemmaConfig(**{**sizes, **heads, **fields})


def bloom(**fields: Any) -> BloomConfig:
    sizes = {"vocab_size": 64, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6}
    return BloomConfig(**{**sizes, "initializer_range": 0.2, **fields})


CONFIGS = [gemma(), gemma(tie_word_embeddings=False), bloom(), bloom(tie_word_embeddings=False)]
STAGES = [frozenset({0, 1}), frozenset({2}), frozenset({3, 4})]


def models_of(config: ModelConfig) -> list[CausalLM]:
    return [new_model(config, 7, placement=Placement(stages=stages)) for stages in STAGES]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_parts_have_all_tensors_of_the_whole_and_only_a_tied_embedding_twice(config: ModelConfig):
    whole = list(new_model(config).parameter_names())
    names = [name for model in models_of(config) for name in model.parameter_names()]
    assert set(names) == set(whole)
    twice = {name for name in names if names.count(name) > 1}
    assert twice == ({whole[0]} if config.tie_word_embeddings else set())


@pytest.mark.parametrize("config", CONFIGS)
def test_tensors_of_a_part_are_those_of_the_whole(config: ModelConfig):
    whole = new_model(config, 7).parameter_names()
    for model in models_of(config):
        for name, weight in model.parameter_names().items():
            np.testing.assert_array_equal(weight.parameter.numpy(), whole[name].parameter.numpy())


@pytest.mark.parametrize("config", CONFIGS)
def test_a_pass_through_the_stages_of_all_parts_is_one_through_the_whole(config: ModelConfig):
    ids = paddle.to_tensor(np.random.default_rng(0).integers(0, 64, 9))
    packing = Packing.of(ids.reshape([1, 9]), None, None)
    work = LossPass(ids, packing, paddle.to_tensor(np.arange(9)))
    parts, x = models_of(config), ids
    for model in parts:
        prepared = model.prepare(packing)
        for stage in model.stages():
            x = stage.run(x, *prepared)
    outcome = work.finish(parts[-1].lm_head, x)
    assert outcome.item() == new_model(config, 7).run(work).item()


def test_stages_are_numbered_from_the_embedding_to_the_norm():
    numbers = [stage.number for model in models_of(gemma()) for stage in model.stages()]
    assert numbers == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("build", [gemma, bloom])
def test_a_tied_head_on_a_part_without_the_first_stage_has_the_embedding(build: Callable[..., ModelConfig]):
    last = models_of(build())[-1]
    embedding = next(iter(last.parameter_names().values()))
    assert last.lm_head.weight is embedding.parameter
