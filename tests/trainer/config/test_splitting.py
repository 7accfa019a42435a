from typing import Any

import pytest

from trainer.config.known_models import KNOWN_MODELS
from trainer.config.splitting import Shape, copied_keys, misfits
from trainer.config.topology import Topology


def shape(name: str) -> Shape:
    known = KNOWN_MODELS[name]
    found = Shape.of({"model_type": known.model_type, **known.sizes})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("google/gemma-2b", Topology(tensor=8)),  # one key head for all ranks
        ("google/gemma-2b", Topology(pipeline=4)),  # 18 layers: two chunks have five
        ("google/gemma-7b", Topology(tensor=16)),
        ("google/gemma-7b", Topology(pipeline=7, virtual=4)),
        ("bigscience/bloom-3b", Topology(tensor=32, pipeline=30)),
        ("bigscience/bloom-560m", Topology(tensor=4, data=2)),
    ],
)
def test_a_model_whose_sizes_divide_can_be_split(name: str, topology: Topology) -> None:
    assert list(misfits(shape(name), topology)) == []


@pytest.mark.parametrize(
    ("name", "topology", "msg", "hint"),
    [
        (
            "google/gemma-2b",
            Topology(tensor=16),
            "num_attention_heads 8 / tensor_parallel_degree 16 leaves 8, expected a degree that divides it",
            "Use one of 1, 2, 4, 8.",
        ),
        (
            "bigscience/bloom-1b1",
            Topology(tensor=3),
            "n_head 16 / tensor_parallel_degree 3 leaves 1, expected a degree that divides it",
            "Use one of 1, 2, 4, 8, 16.",
        ),
        (
            "google/gemma-2b",
            Topology(pipeline=20),
            "pipeline_parallel_degree 20 chunks of layers, but the model has 18 layers, "
            "expected one or more for each chunk",
            "Set it to at most 18.",
        ),
        (
            "bigscience/bloom-560m",
            Topology(pipeline=8, virtual=4),
            "pipeline_parallel_degree 8 x virtual_pp_degree 4 = 32 chunks of layers, but the model has 24 "
            "layers, expected one or more for each chunk",
            "Lower them until their product is at most 24.",
        ),
    ],
)
def test_what_does_not_divide_is_told_with_the_arithmetic(
    name: str, topology: Topology, msg: str, hint: str
) -> None:
    (problem,) = misfits(shape(name), topology)
    assert (problem.msg, problem.hint) == (msg, hint)


def test_the_inner_width_is_split_too() -> None:
    found = Shape.of({"model_type": "gemma", "num_attention_heads": 6, "intermediate_size": 20})
    assert found is not None
    (problem,) = misfits(found, Topology(tensor=3))
    assert problem.msg.startswith("intermediate_size 20 / tensor_parallel_degree 3 leaves 2")
    assert problem.hint == "Use one of 1, 2."
    bloom = Shape.of({"model_type": "bloom", "hidden_size": 5, "n_head": 8, "n_layer": 1})
    assert bloom is not None
    (problem,) = misfits(bloom, Topology(tensor=8))
    assert problem.msg.startswith("4 x hidden_size 5 / tensor_parallel_degree 8 leaves 4")


@pytest.mark.parametrize(
    ("heads", "hint"),
    [
        (1, "More sharding in its place costs no copies, where the model fits."),
        (2, "They are shared with a degree of at most 2."),
    ],
)
def test_key_heads_that_every_rank_has_are_told(heads: int, hint: str) -> None:
    found = Shape.of({"model_type": "gemma", "num_attention_heads": 8, "num_key_value_heads": heads})
    assert found is not None
    (warning,) = copied_keys(found, Topology(tensor=4))
    assert warning.loc == ("tensor_parallel_degree",)
    assert warning.msg == (
        f"4 ranks cannot share num_key_value_heads {heads} among them: each computes and keeps all of the "
        "key heads"
    )
    assert warning.hint == hint


def test_key_heads_that_ranks_share_are_not_worth_a_word() -> None:
    assert list(copied_keys(shape("google/gemma-7b"), Topology(tensor=8))) == []
    assert list(copied_keys(shape("google/gemma-2b"), Topology(pipeline=2))) == []
    assert list(copied_keys(shape("bigscience/bloom-3b"), Topology(tensor=4))) == []


@pytest.mark.parametrize(
    "content",
    [
        {"model_type": "bloom"},
        {"model_type": "bloom", "hidden_size": 8, "n_head": "2", "n_layer": 1},
        {"model_type": "gemma", "num_attention_heads": 0},
        {"model_type": "gemma", "num_hidden_layers": True},
    ],
)
def test_sizes_that_are_none_are_left_to_other_checks(content: dict[str, Any]) -> None:
    assert Shape.of(content) is None
