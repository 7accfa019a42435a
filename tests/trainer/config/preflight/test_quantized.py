"""What the check of a job says of a quantized model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.config import FinetuneConfig
from trainer.config.preflight import Roots, check_job
from trainer.config.quantized_models import QuantizationScheme, StoredAs

Config = Callable[..., FinetuneConfig]
GPTQ = QuantizationScheme(StoredAs.GPTQ, 4, 128).content([], [], "lm_head")
A8W8 = QuantizationScheme(StoredAs.INT_QUANTIZED, 8, activations=True).content([], [], "lm_head")


def quantize(model: Path, content: dict[str, Any]) -> None:
    (model / "config.json").write_text(json.dumps({"model_type": "gemma", "quantization_config": content}))


@pytest.mark.parametrize("content", [GPTQ, A8W8])
def test_a_quantized_model_cannot_be_trained(
    config: Config, roots: Roots, model: Path, content: dict[str, Any]
) -> None:
    quantize(model, content)
    (problem,) = check_job(config(), roots).problems
    assert problem.loc == ("model_name_or_path", "config.json", "quantization_config")
    assert problem.msg == "the model is quantized, and whole numbers cannot be trained"
    assert problem.hint == "Name the model that it was made of."


def test_a_quantized_model_can_be_evaluated(config: Config, roots: Roots, model: Path) -> None:
    quantize(model, A8W8)
    assert check_job(config(do_train=False, do_eval=True), roots).problems == ()


def test_but_not_split_over_processes(config: Config, roots: Roots, model: Path) -> None:
    quantize(model, A8W8)
    arguments = config(do_train=False, do_eval=True, tensor_parallel_degree=2)
    problems = [problem for problem in check_job(arguments, roots).problems if "quantized" in problem.msg]
    assert [problem.loc for problem in problems] == [("tensor_parallel_degree",)]


def test_an_adapter_is_not_put_on_it(config: Config, roots: Roots, model: Path) -> None:
    quantize(model, A8W8)
    (problem,) = check_job(config(do_train=False, do_eval=True, lora=True), roots).problems
    assert "LoRA adapters are not put on quantized layers" in problem.msg


@pytest.mark.parametrize(
    ("content", "name", "part"),
    [
        ({"quant_method": "awq"}, "quant_method", 'got "awq", expected gptq or compressed-tensors'),
        (GPTQ | {"bits": 3}, "bits", "got 3, expected 4 or 8"),
        (GPTQ | {"group_size": "x"}, "group_size", 'got "x", expected -1'),
        (GPTQ | {"sym": False}, "sym", "expected symmetric weights"),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format", 'got "marlin"'),
        (A8W8 | {"config_groups": {}}, "config_groups", "got 0, expected exactly one group"),
        (A8W8 | {"kv_cache_scheme": {"num_bits": 8}}, "config_groups", "quantizes outputs or the cache"),
        ("int8", None, 'got "int8", expected an object'),
    ],
)
def test_kinds_that_are_not_known_are_refused_with_their_field(
    config: Config, roots: Roots, model: Path, content: Any, name: str | None, part: str
) -> None:
    quantize(model, content)
    (problem,) = check_job(config(do_train=False, do_eval=True), roots).problems
    assert problem.loc[2:] == (("quantization_config", name) if name else ("quantization_config",))
    assert part in problem.msg


@pytest.mark.parametrize(
    ("change", "name", "part"),
    [
        (("weights", "type", "float"), "type", 'got "float" for weights, expected int'),
        (("weights", "strategy", "tensor"), "strategy", "expected channel or group"),
        (("weights", "symmetric", False), "symmetric", "expected True"),
        (("weights", "actorder", "group"), "actorder", "expected groups of neighbours"),
        (("input_activations", "dynamic", True), "input_activations", "dynamic: got true, expected false"),
        (("input_activations", "strategy", "token"), "input_activations", 'strategy: got "token"'),
    ],
)
def test_so_are_unknown_ways_of_compressed_tensors(
    config: Config, roots: Roots, model: Path, change: tuple[str, str, Any], name: str, part: str
) -> None:
    of, key, value = change
    content = json.loads(json.dumps(A8W8))
    content["config_groups"]["group_0"][of][key] = value
    quantize(model, content)
    (problem,) = check_job(config(do_train=False, do_eval=True), roots).problems
    assert problem.loc[-1] == name
    assert part in problem.msg
