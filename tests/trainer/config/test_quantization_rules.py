from typing import Any

import pytest

from trainer.config import read_config

NEEDED = {"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o"}


@pytest.mark.parametrize(
    ("arguments", "name", "part"),
    [
        ({"do_awq": True, "shift": True}, "shift", "do_awq cannot be combined with shift"),
        ({"do_ptq": True, "quant_type": "a8w8c8"}, "quant_type", "neither a quantized cache nor fp8"),
        ({"do_ptq": True, "quant_type": "a8w8_fp8"}, "quant_type", "expected one of a8w8, weight_only_int8"),
        ({"do_ptq": True, "prefix_tuning": True}, "prefix_tuning", "a prefix cannot be quantized"),
        ({"do_ptq": True, "lora": True}, "lora", "true without lora_path"),
        ({"do_ptq": True, "load_quant_model": True}, "load_quant_model", "is not quantized again"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: dict[str, Any], name: str, part: str) -> None:
    problems = read_config("quantize", NEEDED | arguments).problems
    assert any(problem.loc == (name,) and part in problem.msg for problem in problems)


@pytest.mark.parametrize(
    ("arguments", "name", "part"),
    [
        ({"do_gptq": True, "ptq_step": 4}, "ptq_step", "do_ptq is false"),
        ({"do_ptq": True, "gptq_step": 4}, "gptq_step", "do_gptq is false"),
        ({"do_ptq": True, "smooth_k_piece": 4}, "smooth_k_piece", "smooth_piecewise_search is false"),
        ({"do_ptq": True, "smooth_step": 4}, "smooth_step", "smooth is false"),
        ({"do_gptq": True, "auto_clip": True}, "auto_clip", "no effect with do_gptq"),
        ({"do_gptq": True, "act_quant_method": "abs_max"}, "act_quant_method", "quant_type a8w8 only"),
        ({"do_awq": True, "weight_quant_method": "groupwise"}, "weight_quant_method", "is done anyway"),
        ({"do_ptq": True, "fp8_type": ["e5m2"]}, "fp8_type", "a8w8_fp8 is not offered"),
    ],
)
def test_what_does_nothing_is_told(arguments: dict[str, Any], name: str, part: str) -> None:
    reading = read_config("quantize", NEEDED | arguments)
    assert reading.config is not None, reading.problems
    assert any(found.loc == (name,) and part in found.msg for found in reading.warnings)


def test_options_of_the_chosen_method_are_accepted_silently() -> None:
    smooth = {"smooth": True, "smooth_step": 4, "smooth_piecewise_search": True, "smooth_k_piece": 2}
    assert read_config("quantize", NEEDED | {"do_ptq": True, "ptq_step": 4} | smooth).warnings == ()
    assert read_config("quantize", NEEDED | {"do_gptq": True, "gptq_step": 4}).warnings == ()
    assert read_config("quantize", NEEDED | {"do_awq": True, "auto_clip": True}).warnings == ()
