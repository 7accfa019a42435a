"""What the number of devices, the model's sizes and the amount of data say about parallel degrees."""

import json
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest

from trainer.config import FinetuneConfig, preset, read_config
from trainer.config.preflight import Roots, check_job
from trainer.config.schema import RunConfig

Config = Callable[..., FinetuneConfig]
SIZES = {"num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 16, "num_hidden_layers": 2}


@pytest.fixture
def shape(model: Path) -> Callable[..., None]:
    """Write other sizes into config.json."""

    def write(**sizes: int) -> None:
        content = {"model_type": "gemma", **SIZES, **sizes}
        (model / "config.json").write_text(json.dumps(content))

    write()
    return write


def test_degrees_need_devices(config: Config, roots: Roots, shape: object) -> None:
    job = config(tensor_parallel_degree=2, pipeline_parallel_degree=2, gradient_accumulation_steps=2)
    assert check_job(job, roots).problems == ()
    assert check_job(job, roots, world_size=8).problems == ()
    (problem,) = check_job(job, roots, world_size=6).problems
    assert problem.loc == ("tensor_parallel_degree",)
    assert problem.msg == (
        "tensor_parallel_degree 2 x pipeline_parallel_degree 2 = 4 devices, which does not divide 6 devices"
    )


def test_what_is_wrong_besides_the_number_of_devices_is_told_with_it(
    config: Config, roots: Roots, shape: object
) -> None:
    job = config(tensor_parallel_degree=3, dataset_name_or_path="nowhere")
    problems = check_job(job, roots, world_size=1).problems
    assert [problem.loc[0] for problem in problems] == [
        "tensor_parallel_degree",
        "tensor_parallel_degree",
        "tensor_parallel_degree",
        "dataset_name_or_path",
    ]


def test_heads_and_layers_are_looked_up_in_the_model(
    config: Config, roots: Roots, shape: Callable[..., None]
) -> None:
    shape(num_attention_heads=6)
    (problem,) = check_job(config(tensor_parallel_degree=4), roots).problems
    assert problem.loc == ("tensor_parallel_degree",)
    assert problem.msg.startswith("num_attention_heads 6 / tensor_parallel_degree 4 leaves 2")
    shape(num_hidden_layers=1)
    job = config(pipeline_parallel_degree=2, gradient_accumulation_steps=2)
    (problem,) = check_job(job, roots).problems
    assert problem.loc == ("pipeline_parallel_degree",)
    assert "but the model has 1 layers" in problem.msg


def test_key_heads_and_the_vocabulary_need_not_divide(config: Config, roots: Roots, shape: object) -> None:
    checked = check_job(config(tensor_parallel_degree=4), roots)
    assert checked.problems == ()
    assert ("tensor_parallel_degree",) in [warning.loc for warning in checked.warnings]


def test_heads_without_end_are_told_in_a_moment(
    config: Config, roots: Roots, shape: Callable[..., None]
) -> None:
    shape(num_attention_heads=10**30, intermediate_size=10**30)
    (problem,) = check_job(config(tensor_parallel_degree=3), roots).problems[:1]
    assert len(problem.hint) < 200


def test_a_model_of_the_built_in_table_is_checked_before_it_is_fetched(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    roots = Roots((tmp_path / "models",), (tmp_path / "data",), hub=True)
    job = config(model_name_or_path="google/gemma-2b", tensor_parallel_degree=16)
    (problem,) = check_job(job, roots).problems
    assert problem.loc == ("tensor_parallel_degree",)
    assert problem.msg.startswith("num_attention_heads 8 / tensor_parallel_degree 16 leaves 8")


@pytest.mark.parametrize(
    ("arguments", "world", "steps"),
    [
        ({}, 1, 10),
        ({}, 2, 5),
        ({}, 4, 3),
        ({"tensor_parallel_degree": 2}, 2, 10),
        ({"tensor_parallel_degree": 2}, 4, 5),
        ({"sharding": "stage1"}, 4, 3),
        ({"sharding": "stage1", "sharding_parallel_degree": 2, "gradient_accumulation_steps": 2}, 4, 2),
    ],
)
def test_a_step_takes_data_for_every_device_that_has_its_own(
    config: Config,
    roots: Roots,
    shape: Callable[..., None],
    arguments: dict[str, object],
    world: int,
    steps: int,
) -> None:
    shape(num_key_value_heads=2)
    job = config(per_device_train_batch_size=2, save_strategy="no", **arguments)
    checked = check_job(job, roots, world_size=world)
    assert checked.statistics["optimizer_steps"] == steps
    assert checked.warnings == ()


def test_devices_without_data_are_a_warning(config: Config, roots: Roots, shape: object) -> None:
    job = config(per_device_train_batch_size=8, save_strategy="no")
    (warning,) = check_job(job, roots, world_size=4).warnings
    assert warning.loc == ("per_device_train_batch_size",)
    assert warning.msg == (
        "the training data make 3 batches of 8, for 4 devices with data of their own: "
        "1 of them have nothing to do"
    )


@pytest.mark.parametrize(
    ("arguments", "world", "msg"),
    [
        ({"sharding": "stage1"}, 1, "stage1 has no effect: 1 device"),
        (
            {"sharding": "stage2", "tensor_parallel_degree": 2},
            2,
            "stage2 has no effect: 2 devices / tensor_parallel_degree 2 = 1 for sharding",
        ),
        (
            {"sharding": "stage3", "sharding_parallel_degree": 1},
            2,
            "stage3 has no effect with sharding_parallel_degree 1",
        ),
    ],
)
def test_sharding_over_one_device_is_a_warning(
    config: Config,
    roots: Roots,
    shape: Callable[..., None],
    arguments: dict[str, object],
    world: int,
    msg: str,
) -> None:
    shape(num_key_value_heads=2)
    (warning,) = check_job(config(save_strategy="no", **arguments), roots, world_size=world).warnings
    assert (warning.loc, warning.msg) == (("sharding",), msg)


@pytest.mark.parametrize(
    ("family", "name", "devices"),
    [
        ("bloom", "sft", 4),
        ("bloom", "lora", 1),
        ("bloom", "pt", 1),
        ("gemma", "sft", 8),
        ("gemma", "dpo", 2),
        ("gemma", "dpo_lora", 1),
        ("gemma", "kto", 8),
        ("gemma", "kto_lora", 8),
    ],
)
def test_the_seeds_argument_files_fit_their_published_models(
    family: str, name: str, devices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    found = preset(family, name)
    config = read_config(found.task, found.config).config
    assert isinstance(config, RunConfig)
    assert config.world_size() == devices
    roots = Roots((tmp_path,), (tmp_path,), hub=True)
    data = {"dataset_name_or_path", "train_dataset_path", "dev_dataset_path"}
    for world in (None, devices, 8):
        problems = check_job(config, roots, world_size=world).problems
        assert [problem for problem in problems if problem.loc[0] not in data] == []
    if devices > 1:
        problem = check_job(config, roots, world_size=1).problems[0]
        assert f"= {devices} devices, more than there are (1 device)" in problem.msg
