"""A task that makes a model of a model is refused when it would write over what it reads."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.config.preflight.test_adapters import LORA, write_adapter
from trainer.config import Problem, read_config
from trainer.config.preflight import Roots, check_job

NEEDED: dict[str, dict[str, Any]] = {
    "export": {"model_name_or_path": "models/gemma"},
    "quantize": {"model_name_or_path": "models/gemma", "dataset_name_or_path": "data/sft", "do_ptq": True},
    "merge": {"lora_path": "models/lora"},
}


@pytest.fixture
def place(tmp_path: Path, roots: Roots, model: Path) -> Path:
    """A folder with a model `models/gemma`, an adapter `models/lora`, and `link` that leads to the model."""
    write_adapter(tmp_path / "models" / "lora", LORA, model)
    (tmp_path / "link").symlink_to(model)
    return tmp_path


def problems(task: str, place: Path, output_dir: str, **arguments: Any) -> list[Problem]:
    reading = read_config(task, NEEDED[task] | {"output_dir": output_dir} | arguments)
    assert reading.config is not None, reading.problems
    return list(check_job(reading.config, None, place).problems)


@pytest.mark.parametrize("task", NEEDED)
@pytest.mark.parametrize(
    ("output_dir", "words"),
    [
        ("models/gemma", "is the folder of the model"),
        ("models/../link/", "is the folder of the model"),
        ("models", "contains"),
        (".", "contains"),
    ],
)
def test_the_model_itself_and_what_contains_it(task: str, output_dir: str, words: str, place: Path) -> None:
    found = problems(task, place, output_dir)
    assert {problem.loc for problem in found} == {("output_dir",)}
    assert words in found[0].msg
    assert found[0].hint == "Name another folder."


@pytest.mark.parametrize("output_dir", ["models/gemma/graph", "link/graph"])
def test_a_graph_inside_the_model(output_dir: str, place: Path) -> None:
    (problem,) = problems("export", place, output_dir)
    assert problem.loc == ("output_dir",)
    assert f"is inside {place / 'models' / 'gemma'}" in problem.msg


@pytest.mark.parametrize("task", NEEDED)
def test_folders_beside_it_are_free(task: str, place: Path) -> None:
    assert problems(task, place, "models/gemma-2") == []


def test_the_adapter_that_is_merged(place: Path) -> None:
    (problem,) = problems("merge", place, "models/lora")
    assert "is the folder of the adapter" in problem.msg
    (problem,) = problems("quantize", place, "models/lora", lora=True, lora_path="models/lora")
    assert "is the folder of the adapter" in problem.msg


@pytest.mark.parametrize("task", ["quantize", "merge"])
def test_a_folder_with_another_adapter_which_the_model_would_be_taken_for(task: str, place: Path) -> None:
    write_adapter(place / "other", LORA, None)
    (problem,) = problems(task, place, "other")
    assert "holds an adapter" in problem.msg
