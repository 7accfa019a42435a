"""Roles, split rules and stages of every family, at the published sizes. Nothing is allocated for that."""

import math
from functools import cache
from typing import Any

import paddle
import pytest

from trainer.config.known_models import KNOWN_MODELS
from trainer.models import CausalLM
from trainer.models.bloom.configuration import BloomConfig
from trainer.models.gemma.configuration import GemmaConfig
from trainer.models.parts import Role, Split, split_of, split_problem
from trainer.models.registry import Family, family, known_config, linear_layers

NAMES = ["google/gemma-2b", "google/gemma-7b", "bigscience/bloom-560m", "bigscience/bloom-7b1"]


@cache
def shapes_of(name: str) -> CausalLM:
    """A model of a published size whose parameters have shapes and no values."""
    config = known_config(name)
    with paddle.LazyGuard():
        return family(config.model_type).model_class(config)


def family_of(name: str) -> Family:
    return family(KNOWN_MODELS[name].model_type)


@pytest.mark.parametrize("name", KNOWN_MODELS)
def test_a_known_model_has_its_published_number_of_parameters(name: str):
    shapes = (weight.disk_shape for weight in shapes_of(name).parameter_names().values())
    assert sum(map(math.prod, shapes)) == KNOWN_MODELS[name].parameters


@pytest.mark.parametrize(
    ("name", "tensors"),
    [("google/gemma-2b", 164), ("google/gemma-7b", 254), ("bigscience/bloom-560m", 293)],
)
def test_a_known_model_has_its_published_number_of_tensors(name: str, tensors: int):
    assert len(shapes_of(name).parameter_names()) == tensors


def test_the_known_names_are_the_four_of_gemma_and_the_twelve_of_bloom():
    types = [known.model_type for known in KNOWN_MODELS.values()]
    assert (types.count("gemma"), types.count("bloom"), len(types)) == (4, 12, 16)


def test_the_small_gemma_has_18_layers_and_one_key_head_and_the_large_one_wider_heads_than_its_width():
    small, large = known_config("google/gemma-2b-it"), known_config("google/gemma-7b-it")
    assert (small.num_hidden_layers, small.num_attention_heads, small.num_key_value_heads) == (18, 8, 1)
    assert (large.num_attention_heads * large.head_dim, large.hidden_size) == (4096, 3072)


@pytest.mark.parametrize("name", NAMES)
def test_every_linear_layer_has_a_role(name: str):
    model = shapes_of(name)
    roles = {linear.role for linear in linear_layers(model)}
    gemma = {Role.QUERY, Role.KEY, Role.VALUE, Role.ATTENTION_OUTPUT, Role.GATE, Role.UP, Role.DOWN}
    bloom = {Role.QUERY_KEY_VALUE, Role.ATTENTION_OUTPUT, Role.UP, Role.DOWN}
    assert roles == (gemma if model.config.model_type == "gemma" else bloom)
    assert len(list(linear_layers(model))) == len(roles) * model.config.num_hidden_layers


def test_fused_layers_have_roles_of_their_own():
    config = GemmaConfig(num_hidden_layers=1, fuse_attention_qkv=True, fuse_attention_ffn=True)
    with paddle.LazyGuard():
        model = family("gemma").model_class(config)
    roles = {linear.path.rpartition(".")[2]: linear.role for linear in linear_layers(model)}
    assert roles == {
        "qkv_proj": Role.QUERY_KEY_VALUE,
        "o_proj": Role.ATTENTION_OUTPUT,
        "gate_up_fused_proj": Role.GATE_UP,
        "down_proj": Role.DOWN,
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_has_a_split_rule_that_cuts_it_into_equal_whole_pieces(name: str):
    model, rules = shapes_of(name), family_of(name).splits
    for tensor, weight in model.parameter_names().items():
        rule = split_of(rules, tensor)
        if rule is not None and not rule.filled_when_uneven:
            pieces = getattr(model.config, rule.unit)
            assert weight.disk_shape[rule.axis] % pieces == 0, tensor


@pytest.mark.parametrize("name", NAMES)
def test_matrices_are_cut_by_outputs_into_attention_and_mlp_and_by_inputs_out_of_them(name: str):
    model, rules = shapes_of(name), family_of(name).splits
    tensors = model.parameter_names()
    into = {Role.QUERY, Role.KEY, Role.VALUE, Role.QUERY_KEY_VALUE, Role.GATE, Role.UP}
    for linear in linear_layers(model):
        weight = split_of(rules, f"{linear.path}.weight")
        assert weight is not None
        assert weight.axis == (0 if linear.role in into else 1)
        if f"{linear.path}.bias" in tensors:
            bias = split_of(rules, f"{linear.path}.bias")
            assert bias == (weight if linear.role in into else None)


def test_a_key_head_that_cannot_be_cut_is_kept_whole():
    rule = split_of(family("gemma").splits, "model.layers.17.self_attn.k_proj.weight")
    assert rule == Split(0, "num_key_value_heads", whole_when_uneven=True)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("google/gemma-2b", 8),
        ("google/gemma-7b", 16),
        ("bigscience/bloom-560m", 8),
        ("bigscience/bloom-7b1", 16),
    ],
)
def test_a_published_model_is_split_over_a_node_or_two(name: str, ranks: int):
    assert split_problem(family_of(name).splits, known_config(name), ranks) is None


@pytest.mark.parametrize(
    ("name", "ranks", "words"),
    [
        ("google/gemma-2b", 16, "got 16, and the model's num_attention_heads is 8"),
        ("bigscience/bloom-7b1", 3, "got 3, and the model's num_attention_heads is 32"),
    ],
)
def test_heads_that_cannot_be_dealt_out_evenly_are_a_problem(name: str, ranks: int, words: str):
    problem = split_problem(family_of(name).splits, known_config(name), ranks)
    assert problem is not None
    assert problem.loc == ("tensor_parallel_degree",)
    assert words in problem.msg


def test_every_rank_must_have_a_token_of_its_own():
    rules = family("bloom").splits
    sizes: Any = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4}
    assert split_problem(rules, BloomConfig(vocab_size=9, **sizes), 4) is not None
    assert split_problem(rules, BloomConfig(vocab_size=10, **sizes), 4) is None


def test_a_tensor_without_a_rule_is_an_error():
    with pytest.raises(KeyError):
        split_of(family("gemma").splits, "model.layers.0.mlp.router.weight")


@pytest.mark.parametrize("name", NAMES)
def test_stages_use_every_parameter_of_the_decoder_once(name: str):
    model = shapes_of(name)
    stages = model.stages()
    assert len(stages) == model.config.num_hidden_layers + 2
    used = [
        tensor
        for stage in stages
        for module in stage.modules
        for tensor in model.parameter_names()
        if tensor.startswith(f"{module}.")
    ]
    assert sorted(used) == sorted(model.parameter_names())
