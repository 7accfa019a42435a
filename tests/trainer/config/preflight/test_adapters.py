"""Adapters that a config names: found, checked, and taken over before a device is taken."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.config.conftest import write_safetensors
from trainer.config import FinetuneConfig, Problem, read_config
from trainer.config.preflight import Checked, Roots, check_job
from trainer.config.schema import MergeConfig

Config = Callable[..., FinetuneConfig]
LORA = {"peft_type": "LORA", "r": 4, "lora_alpha": 12, "use_rslora": True, "target_modules": ["q_proj"]}
PREFIX = {
    "peft_type": "PREFIX_TUNING",
    "num_virtual_tokens": 7,
    "num_layers": 2,
    "num_attention_heads": 1,
    "token_dim": 8,
}


def write_adapter(folder: Path, settings: dict[str, Any], base: Path | str | None) -> Path:
    folder.mkdir()
    named = settings | {"base_model_name_or_path": None if base is None else str(base)}
    (folder / "adapter_config.json").write_text(json.dumps(named))
    write_safetensors(folder / "adapter_model.safetensors", {"w": [2]})
    return folder


@pytest.fixture
def lora(roots: Roots, model: Path) -> Path:
    return write_adapter(roots.models[0] / "lora", LORA, model)


@pytest.fixture
def prefix(roots: Roots, model: Path) -> Path:
    return write_adapter(roots.models[0] / "prefix", PREFIX, model)


def evaluate(roots: Roots, **arguments: Any) -> Checked:
    reading = read_config("evaluate", {"dataset_name_or_path": "sft", "output_dir": "out", **arguments})
    assert reading.config is not None, reading.problems
    return check_job(reading.config, roots)


def merge(roots: Roots, **arguments: Any) -> Checked:
    reading = read_config("merge", {"output_dir": "out", **arguments})
    assert reading.config is not None, reading.problems
    return check_job(reading.config, roots)


def only(problems: tuple[Problem, ...]) -> Problem:
    (problem,) = problems
    assert problem.hint
    return problem


def test_a_saved_adapter_decides_rank_alpha_and_targets(config: Config, roots: Roots, lora: Path) -> None:
    checked = check_job(config(lora=True, lora_path="lora", lora_rank=64), roots)
    assert checked.problems == ()
    found = checked.config.resolved()
    assert found["lora_path"] == str(lora)
    assert (found["lora_rank"], found["lora_alpha"], found["rslora"]) == (4, 12, True)
    assert found["target_modules"] == ["q_proj"]


def test_a_saved_prefix_decides_its_length(config: Config, roots: Roots, prefix: Path) -> None:
    checked = check_job(config(prefix_tuning=True, prefix_path="prefix"), roots)
    assert checked.problems == ()
    assert checked.config.resolved()["num_prefix_tokens"] == 7


def test_an_adapter_of_the_other_kind_is_refused(config: Config, roots: Roots, prefix: Path) -> None:
    problem = only(check_job(config(lora=True, lora_path="prefix"), roots).problems)
    assert problem.loc == ("lora_path",)
    assert problem.msg.endswith("holds PREFIX_TUNING, expected LORA")


def test_an_adapter_is_no_model_to_train(config: Config, roots: Roots, lora: Path) -> None:
    problem = only(check_job(config(model_name_or_path="lora"), roots).problems)
    assert "is an adapter, expected a whole model" in problem.msg
    assert "lora_path" in problem.hint


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_every_file_of_an_adapter_must_be_there(config: Config, roots: Roots, lora: Path, name: str) -> None:
    (lora / name).unlink()
    problem = only(check_job(config(lora=True, lora_path="lora"), roots).problems)
    assert (problem.loc, name in problem.msg) == (("lora_path",), True)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_files_that_lead_out_of_the_roots_are_not_read(
    config: Config, roots: Roots, lora: Path, tmp_path: Path, name: str
) -> None:
    (lora / name).rename(tmp_path / "elsewhere")
    (lora / name).symlink_to(tmp_path / "elsewhere")
    problem = only(check_job(config(lora=True, lora_path="lora"), roots).problems)
    assert problem.msg == f"{name} is a link to a place outside the allowed folders"


@pytest.mark.parametrize(
    "name", ["adapter_config.json", "prefix_encoder.safetensors", "tokenizer_config.json"]
)
def test_a_pipe_that_would_never_end_is_refused(config: Config, roots: Roots, lora: Path, name: str) -> None:
    (lora / name).unlink(missing_ok=True)
    os.mkfifo(lora / name)
    problem = only(check_job(config(lora=True, lora_path="lora"), roots).problems)
    assert problem.msg == f"{name} is no plain file"


@pytest.mark.parametrize("base", ["a\0b", "\ud800"])
def test_a_base_that_no_folder_can_be_is_a_problem_of_the_adapter(roots: Roots, base: str) -> None:
    write_adapter(roots.models[0] / "broken", LORA, base)
    problem = only(merge(roots, lora_path="broken").problems)
    assert problem.loc == ("lora_path", "base_model_name_or_path")


@pytest.mark.parametrize("text", ["[]", "{", '{"peft_type": "IA3"}', '{"peft_type": "LORA", "r": "x"}'])
def test_an_adapter_config_that_says_nothing_useful_is_refused(
    config: Config, roots: Roots, lora: Path, text: str
) -> None:
    (lora / "adapter_config.json").write_text(text)
    problems = check_job(config(lora=True, lora_path="lora"), roots).problems
    assert problems
    assert {problem.loc[0] for problem in problems} == {"lora_path"}


def test_paddlenlps_adapters_are_recognised_and_refused(config: Config, roots: Roots, lora: Path) -> None:
    (lora / "adapter_config.json").rename(lora / "lora_config.json")
    problem = only(check_job(config(lora=True, lora_path="lora"), roots).problems)
    assert "adapters in PaddleNLP's layout are not read" in problem.msg


@pytest.mark.parametrize(
    ("arguments", "switch"), [({"lora_path": "a"}, "lora"), ({"prefix_path": "a"}, "prefix_tuning")]
)
def test_a_path_without_its_switch_is_refused(
    read: Callable[..., Any], arguments: dict[str, str], switch: str
) -> None:
    assert only(read(**arguments).problems).hint == f"Set {switch} to true."


def test_options_of_a_method_that_is_off_are_told_to_have_no_effect(read: Callable[..., Any]) -> None:
    reading = read(lora_rank=64, target_modules=["q_proj"], num_prefix_tokens=5)
    assert {warning.loc[0] for warning in reading.warnings} == {
        "lora_rank",
        "target_modules",
        "num_prefix_tokens",
    }


@pytest.mark.parametrize(("kind", "field"), [("lora", "lora_path"), ("prefix", "prefix_path")])
def test_an_adapter_is_evaluated_on_its_base(
    request: pytest.FixtureRequest, roots: Roots, model: Path, kind: str, field: str
) -> None:
    folder = request.getfixturevalue(kind)
    checked = evaluate(roots, model_name_or_path=kind)
    assert checked.problems == ()
    found = checked.config.resolved()
    assert found["model_name_or_path"] == found["tokenizer_name_or_path"] == str(model)
    assert found[field] == str(folder)
    assert found["lora"] is (kind == "lora")
    assert found["do_eval"] is True
    assert "train" not in checked.statistics


def test_an_adapters_own_tokenizer_comes_first(roots: Roots, lora: Path) -> None:
    (lora / "tokenizer.json").write_text("{}")
    assert evaluate(roots, model_name_or_path="lora").config.resolved()["tokenizer_name_or_path"] == str(lora)


def test_evaluation_takes_a_whole_training_file(roots: Roots, config: Config, model: Path) -> None:
    raw = config(
        lora=True,
        lora_rank=64,
        load_best_model_at_end=True,
        evaluation_strategy="epoch",
        save_strategy="epoch",
    ).resolved()
    reading = read_config("evaluate", raw)
    assert reading.config is not None, reading.problems
    assert [warning.loc for warning in reading.warnings] == [("do_train",)]
    assert reading.config.resolved()["lora"] is False


@pytest.mark.parametrize("base", ["/somewhere/else", "../gemma", "gone"])
def test_the_base_that_an_adapter_names_must_lie_in_the_roots(roots: Roots, base: str) -> None:
    write_adapter(roots.models[0] / "strange", LORA, base)
    for checked in (evaluate(roots, model_name_or_path="strange"), merge(roots, lora_path="strange")):
        assert {problem.loc for problem in checked.problems} == {("model_name_or_path",)}


def test_a_merge_finds_the_base_that_the_adapter_names(roots: Roots, lora: Path, model: Path) -> None:
    checked = merge(roots, lora_path="lora")
    assert checked.problems == ()
    assert isinstance(checked.config, MergeConfig)
    assert (checked.config.lora_path, checked.config.model_name_or_path) == (str(lora), str(model))
    assert checked.statistics["model"]["tensors"] == 2


@pytest.mark.parametrize("name", ["tokenizer.json", "special_tokens_map.json", "chat_template.jinja"])
@pytest.mark.parametrize("place", ["lora", "base"])
def test_a_merge_copies_no_file_from_outside_the_roots(
    roots: Roots, lora: Path, model: Path, tmp_path: Path, name: str, place: str
) -> None:
    (tmp_path / "secret").write_text("{}")
    path = (lora if place == "lora" else model) / name
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "secret")
    problem = only(merge(roots, lora_path="lora").problems)
    assert problem.loc == ("lora_path" if place == "lora" else "model_name_or_path",)
    assert problem.msg == f"{name} is a link to a place outside the allowed folders"


def test_a_merge_without_any_base_is_refused(roots: Roots) -> None:
    write_adapter(roots.models[0] / "orphan", LORA, None)
    problem = only(merge(roots, lora_path="orphan").problems)
    assert problem.loc == ("model_name_or_path",)
    assert merge(roots, lora_path="orphan", model_name_or_path="gemma").problems == ()


def test_a_base_that_is_not_there_is_said_to_be_what_the_adapter_names(roots: Roots) -> None:
    adapter = write_adapter(roots.models[0] / "stray", LORA, "/elsewhere/gemma")
    named = f'"/elsewhere/gemma" is outside the allowed model folders; {adapter} names it as its base model'
    problem = only(merge(roots, lora_path="stray").problems)
    assert (problem.loc, problem.msg) == (("model_name_or_path",), named)
    assert problem.hint == "Name the folder of the base model."
    problem = only(evaluate(roots, model_name_or_path="stray").problems)
    assert (problem.loc, problem.msg) == (("model_name_or_path",), named)
    assert problem.hint.startswith("Name the base model here, and the adapter in lora_path")
    problem = only(merge(roots, lora_path="stray", model_name_or_path="nowhere").problems)
    assert "names it" not in problem.msg


def test_a_prefix_cannot_be_merged(roots: Roots, prefix: Path) -> None:
    assert "holds PREFIX_TUNING, expected LORA" in only(merge(roots, lora_path="prefix").problems).msg


def test_a_merge_writes_inside_the_job_only(roots: Roots, lora: Path) -> None:
    problem = only(merge(roots, lora_path="lora", output_dir="/etc").problems)
    assert problem.loc == ("output_dir",)


def test_a_prefix_as_the_model_is_not_evaluated_in_a_pipeline(roots: Roots, prefix: Path) -> None:
    degrees = {"pipeline_parallel_degree": 2, "gradient_accumulation_steps": 2}
    problem = only(evaluate(roots, model_name_or_path="prefix", **degrees).problems)
    assert problem.loc == ("model_name_or_path",)
    assert problem.msg.endswith("is a prefix, and pipeline_parallel_degree is 2")
