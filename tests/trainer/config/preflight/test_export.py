import json
from pathlib import Path
from typing import Any

from trainer.config import read_config
from trainer.config.preflight import Checked, Roots, check_job


def checked(roots: Roots, **arguments: Any) -> Checked:
    reading = read_config("export", {"model_name_or_path": "gemma", "output_dir": "out"} | arguments)
    assert reading.config is not None, reading.problems
    return check_job(reading.config, roots)


def test_the_model_is_found_and_looked_at(roots: Roots, model: Path) -> None:
    found = checked(roots)
    assert found.problems == ()
    assert found.config.resolved()["model_name_or_path"] == str(model)
    assert found.statistics["model"]["tensors"] == 2


def test_a_quantized_model_is_exported_too(roots: Roots, model: Path) -> None:
    config = {"model_type": "gemma", "quantization_config": {"quant_method": "gptq", "bits": 4}}
    (model / "config.json").write_text(json.dumps(config))
    assert checked(roots).problems == ()


def test_an_adapter_is_told_to_be_merged_first(roots: Roots, model: Path) -> None:
    (model / "adapter_config.json").write_text("{}")
    (problem,) = checked(roots).problems
    assert problem.loc == ("model_name_or_path",)
    assert "task merge with this folder as lora_path, or regatta merge" in problem.hint


def test_a_model_without_a_tokenizer_is_refused(roots: Roots, model: Path) -> None:
    (model / "tokenizer.json").unlink()
    assert any("has no tokenizer" in problem.msg for problem in checked(roots).problems)
