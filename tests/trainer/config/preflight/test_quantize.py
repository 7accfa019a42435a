import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.config.conftest import write_lines
from tests.trainer.config.preflight.test_adapters import LORA, PREFIX, write_adapter
from trainer.config import read_config
from trainer.config.preflight import Checked, Roots, check_job, path_problems

RECORD = {"src": "q", "tgt": "a"}


def checked(roots: Roots, **arguments: Any) -> Checked:
    needed = {"model_name_or_path": "gemma", "dataset_name_or_path": "sft", "output_dir": "out"}
    reading = read_config("quantize", needed | {"do_ptq": True} | arguments)
    assert reading.config is not None, reading.problems
    return check_job(reading.config, roots)


def test_calibration_records_are_those_of_quant_json_else_of_train_json(roots: Roots, data: Path) -> None:
    found = checked(roots)
    assert found.problems == ()
    assert found.statistics["train"]["examples"] == 20
    assert not {"dev", "quant", "optimizer_steps"} & found.statistics.keys()
    write_lines(data / "quant.json", [RECORD] * 3)
    found = checked(roots, do_eval=True)
    assert found.statistics["quant"]["examples"] == 3
    assert found.statistics["dev"]["examples"] == 3
    assert "train" not in found.statistics


def test_a_broken_line_of_quant_json_is_named(roots: Roots, data: Path) -> None:
    write_lines(data / "quant.json", [RECORD, {"src": "q"}])
    _, problem = checked(roots).problems
    assert problem.loc == ("dataset_name_or_path", "quant.json", 2)


def test_data_to_calibrate_on_is_needed(roots: Roots, data: Path) -> None:
    (data / "train.json").unlink()
    (problem,) = checked(roots).problems
    assert "has no quant.json and no train.json, which quantization is calibrated on" in problem.msg


def test_a_quantized_model_is_not_quantized_again(roots: Roots, model: Path) -> None:
    config = {"model_type": "gemma", "quantization_config": {"quant_method": "gptq", "bits": 4}}
    (model / "config.json").write_text(json.dumps(config))
    assert any("quantized" in problem.msg for problem in checked(roots).problems)


@pytest.mark.parametrize("world", [2, 4])
def test_it_takes_one_device(roots: Roots, world: int) -> None:
    reading = read_config(
        "quantize",
        {
            "model_name_or_path": "gemma",
            "dataset_name_or_path": "sft",
            "output_dir": "out",
            "do_gptq": True,
        },
    )
    assert reading.config is not None
    problems = check_job(reading.config, roots, world_size=world).problems
    assert any(f"on {world} devices, expected 1" in problem.msg for problem in problems)


def test_an_adapter_named_as_the_model_is_quantized_with_its_base(roots: Roots, model: Path) -> None:
    lora = write_adapter(roots.models[0] / "lora", LORA, model)
    found = checked(roots, model_name_or_path="lora")
    assert found.problems == ()
    config = found.config.resolved()
    assert (config["model_name_or_path"], config["lora_path"]) == (str(model), str(lora))
    assert config["tokenizer_name_or_path"] == str(model)


def test_a_prefix_named_as_the_model_is_refused(roots: Roots, model: Path) -> None:
    write_adapter(roots.models[0] / "prefix", PREFIX, model)
    (problem,) = checked(roots, model_name_or_path="prefix").problems
    assert "is a prefix, which cannot be quantized with its model" in problem.msg
    assert problem.hint == f"Quantize the model alone: {model}."


def test_what_is_wrong_with_paths_is_told_beside_degrees_that_are_refused(roots: Roots) -> None:
    arguments = {"model_name_or_path": "nowhere", "dataset_name_or_path": "sft", "output_dir": "out"}
    reading = read_config("quantize", arguments | {"do_ptq": True, "tensor_parallel_degree": 2})
    (refused,) = reading.problems
    assert refused.loc == ("tensor_parallel_degree",)
    (missing,) = path_problems(reading, roots)
    assert missing.loc == ("model_name_or_path",)
