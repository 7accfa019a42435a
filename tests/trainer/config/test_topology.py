from collections.abc import Callable
from typing import Any

import pytest

from trainer.config import FinetuneConfig
from trainer.config.problems import ConfigError
from trainer.config.schema import MergeConfig
from trainer.config.topology import Topology, misfit

Config = Callable[..., FinetuneConfig]


def built(**arguments: Any) -> FinetuneConfig:
    """A config of which only the parallel arguments matter."""
    required = {"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o"}
    return FinetuneConfig.model_validate(required | arguments)


@pytest.mark.parametrize(
    ("arguments", "world", "expected"),
    [
        ({}, 1, Topology()),
        ({}, 4, Topology(data=4)),
        ({"tensor_parallel_degree": 2}, 2, Topology(tensor=2)),
        ({"tensor_parallel_degree": 2}, 8, Topology(tensor=2, data=4)),
        ({"pipeline_parallel_degree": 4, "virtual_pp_degree": 2}, 4, Topology(pipeline=4, virtual=2)),
        ({"virtual_pp_degree": 2}, 1, Topology()),
        ({"sharding": "stage2"}, 4, Topology(sharding=4, stage=2)),
        ({"sharding": "stage1", "tensor_parallel_degree": 2}, 8, Topology(tensor=2, sharding=4, stage=1)),
        (
            {"sharding": "stage3", "sharding_parallel_degree": 2},
            4,
            Topology(sharding=2, data=2, stage=3),
        ),
        ({"sharding": "stage1"}, 1, Topology()),
        ({"sharding": "stage1", "sharding_parallel_degree": 1}, 2, Topology(data=2)),
        ({"sharding_parallel_degree": 2}, 2, Topology(data=2)),
        (
            {"sharding": "stage1", "sharding_parallel_config": "split_param enable_release_grads"},
            2,
            Topology(sharding=2, stage=1, split_param=True),
        ),
        ({"sharding_parallel_config": "split_param"}, 2, Topology(data=2)),
        (
            {"sequence_parallel": True, "tensor_parallel_degree": 2},
            2,
            Topology(tensor=2, sequence_parallel=True),
        ),
        ({"sequence_parallel": True}, 2, Topology(data=2)),
    ],
)
def test_what_the_degrees_leave_becomes_data_parallel(
    arguments: dict[str, Any], world: int, expected: Topology
) -> None:
    found = Topology.of(built(**arguments), world)
    assert found == expected
    assert found.world == world
    assert found.single == (world == 1)


def test_data_and_sharding_ranks_have_data_of_their_own() -> None:
    assert Topology(tensor=2, pipeline=2, sharding=2, data=3, stage=1).data_ways == 6


def test_without_a_number_of_devices_there_are_as_few_as_the_degrees_need() -> None:
    config = built(tensor_parallel_degree=2, pipeline_parallel_degree=2, sharding="stage1")
    assert Topology.of(config) == Topology(tensor=2, pipeline=2)


@pytest.mark.parametrize(
    ("arguments", "world", "field", "msg", "hint"),
    [
        (
            {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 4},
            4,
            "tensor_parallel_degree",
            "tensor_parallel_degree 2 x pipeline_parallel_degree 4 = 8 devices, "
            "more than there are (4 devices)",
            "Ask for 8 devices, or lower the degrees.",
        ),
        (
            {"sharding": "stage2", "sharding_parallel_degree": 8},
            1,
            "sharding_parallel_degree",
            "sharding_parallel_degree 8 = 8 devices, more than there are (1 device)",
            "Ask for 8 devices, or lower the degrees.",
        ),
        (
            {"tensor_parallel_degree": 4},
            6,
            "tensor_parallel_degree",
            "tensor_parallel_degree 4 = 4 devices, which does not divide 6 devices",
            "Ask for 4 or 8 devices, or lower the degrees.",
        ),
    ],
)
def test_degrees_that_do_not_divide_the_devices_are_refused_with_the_arithmetic(
    arguments: dict[str, Any], world: int, field: str, msg: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Topology.of(built(**arguments), world)
    (problem,) = refused.value.problems
    assert (problem.loc, problem.msg, problem.hint) == ((field,), msg, hint)


def test_a_merge_takes_one_device() -> None:
    config = MergeConfig.model_validate({"lora_path": "a", "output_dir": "o"})
    assert Topology.of(config) == Topology()
    problem = misfit(config, 2)
    assert problem is not None
    assert problem.msg == "task merge on 2 devices, expected 1: nothing of it can be split"
