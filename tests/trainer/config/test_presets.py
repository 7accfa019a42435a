import json
from pathlib import Path

import pytest

from trainer.config import FinetuneConfig, TaskConfig, preset, preset_names, read_config
from trainer.config.topology import Topology, misfit

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
#: How their degrees divide the fewest devices that they need, where that is more than one.
FEWEST = {
    ("bloom", "sft"): Topology(tensor=4),
    ("gemma", "dpo"): Topology(tensor=2),
    ("gemma", "kto"): Topology(tensor=8),
    ("gemma", "kto_lora"): Topology(tensor=8),
    ("gemma", "sft"): Topology(sharding=8, stage=2),
}
#: How they divide eight devices.
EIGHT = {
    ("bloom", "lora"): Topology(data=8),
    ("bloom", "pt"): Topology(data=8),
    ("bloom", "sft"): Topology(tensor=4, data=2),
    ("gemma", "dpo"): Topology(tensor=2, sharding=4, stage=1),
    ("gemma", "dpo_lora"): Topology(sharding=8, stage=1),
    ("gemma", "kto"): Topology(tensor=8),
    ("gemma", "kto_lora"): Topology(tensor=8),
    ("gemma", "sft"): Topology(sharding=8, stage=2),
}


def test_the_ten_argument_files_ship() -> None:
    assert preset_names() == NAMES


@pytest.mark.parametrize(("family", "name"), NAMES)
def test_a_preset_is_the_reference_file(family: str, name: str) -> None:
    path = REFERENCE / family / f"{name}_argument.json"
    if not path.exists():
        pytest.skip("the reference files are not beside this checkout")
    assert preset(family, name).config == json.loads(path.read_text())


def config_of(family: str, name: str) -> TaskConfig:
    found = preset(family, name)
    reading = read_config(found.task, found.config)
    assert reading.config is not None, reading.problems
    return reading.config


@pytest.mark.parametrize(("family", "name"), NAMES)
def test_a_preset_is_accepted_with_its_own_degrees(family: str, name: str) -> None:
    assert Topology.of(config_of(family, name)) == FEWEST.get((family, name), Topology())


@pytest.mark.parametrize(("family", "name"), list(EIGHT))
def test_what_a_preset_leaves_of_eight_devices_takes_data_of_its_own(family: str, name: str) -> None:
    assert Topology.of(config_of(family, name), 8) == EIGHT[family, name]


@pytest.mark.parametrize(("family", "name"), list(FEWEST))
def test_a_preset_with_too_few_devices_is_told_how_many_it_needs(family: str, name: str) -> None:
    config = config_of(family, name)
    needed = FEWEST[family, name].world
    problem = misfit(config, needed - 1)
    assert problem is not None
    assert problem.loc[0] in ("tensor_parallel_degree", "sharding_parallel_degree")
    assert f"= {needed} devices, more than there are ({needed - 1} device" in problem.msg
    assert problem.hint == f"Ask for {needed} devices, or lower the degrees."


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
    assert config_of("gemma", "kto").resolved()["do_train"] is True


def test_the_whole_kto_file_of_paddlenlp_is_accepted_with_its_lazy() -> None:
    raw = preset("gemma", "kto").config | {
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
