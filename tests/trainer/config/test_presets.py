import json
from pathlib import Path

import pytest

from trainer.config import FinetuneConfig, preset, preset_names, read_config

NAMES = [
    ("bloom", "gptq"),
    ("bloom", "lora"),
    ("bloom", "pt"),
    ("bloom", "ptq"),
    ("bloom", "sft"),
    ("gemma", "dpo"),
    ("gemma", "dpo_lora"),
    ("gemma", "kto"),
    ("gemma", "kto_lora"),
    ("gemma", "sft"),
]
REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "configs"
#: What this version refuses in each file: the arguments the user has to change.
REFUSED = {
    ("bloom", "sft"): {"tensor_parallel_degree"},
    ("gemma", "dpo"): {"tensor_parallel_degree"},
    ("gemma", "kto"): {"tensor_parallel_degree"},
    ("gemma", "kto_lora"): {"tensor_parallel_degree"},
    ("gemma", "sft"): {"sharding_parallel_degree"},
}


def test_the_ten_argument_files_ship() -> None:
    assert preset_names() == NAMES


@pytest.mark.parametrize(("family", "name"), NAMES)
def test_a_preset_is_the_reference_file(family: str, name: str) -> None:
    path = REFERENCE / family / f"{name}_argument.json"
    if not path.exists():
        pytest.skip("the reference files are not beside this checkout")
    assert preset(family, name).config == json.loads(path.read_text())


@pytest.mark.parametrize(("family", "name"), NAMES)
def test_a_preset_has_no_problem_but_what_this_version_cannot_do(family: str, name: str) -> None:
    found = preset(family, name)
    problems = read_config(found.task, found.config).problems
    assert {problem.loc[0] for problem in problems} == REFUSED.get((family, name), set())


def test_presets_know_their_task() -> None:
    tasks = {name: preset("bloom", name).task for name in ("gptq", "lora", "pt", "ptq", "sft")}
    assert tasks == {
        "gptq": "quantize",
        "lora": "finetune",
        "pt": "finetune",
        "ptq": "quantize",
        "sft": "finetune",
    }
    assert preset("gemma", "dpo_lora").task == "dpo"
    assert preset("gemma", "kto").task == "kto"


def test_a_preset_answers_to_its_file_name_too() -> None:
    assert preset("gemma", "sft_argument.json") == preset("gemma", "sft")


@pytest.mark.parametrize(
    ("family", "name"), [("gemma", "none"), ("llama", "sft"), ("..", "sft"), ("gemma", "../sft")]
)
def test_an_unknown_preset_is_a_key_error(family: str, name: str) -> None:
    with pytest.raises(KeyError):
        preset(family, name)


def test_the_gemma_sft_preset_runs_when_its_sharding_degree_is_one() -> None:
    raw = preset("gemma", "sft").config | {"sharding_parallel_degree": 1, "max_steps": 20}
    reading = read_config("finetune", raw)
    assert isinstance(reading.config, FinetuneConfig), reading.problems
    assert reading.config.metric_for_best_model == "accuracy"
    assert reading.config.greater_is_better
    assert reading.config.world_size() == 1


def test_the_kto_preset_without_do_flags_trains() -> None:
    raw = preset("gemma", "kto").config | {"tensor_parallel_degree": 1}
    config = read_config("kto", raw).config
    assert config is not None
    assert config.resolved()["do_train"] is True


def test_the_whole_kto_file_of_paddlenlp_is_accepted_with_its_lazy() -> None:
    raw = preset("gemma", "kto").config | {
        "tensor_parallel_degree": 1,
        "logging_steps": 1,
        "evaluation_strategy": "steps",
        "save_strategy": "steps",
        "eval_steps": 100,
        "save_steps": 500,
        "do_train": True,
        "do_eval": True,
        "disable_tqdm": True,
        "load_best_model_at_end": True,
        "benchmark": False,
        "autotuner_benchmark": False,
        "lazy": False,
    }
    reading = read_config("kto", raw)
    assert reading.config is not None, reading.problems
    assert any(warning.loc == ("save_steps",) for warning in reading.warnings)
