from collections.abc import Callable
from typing import Any

import pytest

from trainer.config import Reading, read_config

Read = Callable[..., Reading]
PIPELINE = {"pipeline_parallel_degree": 4, "gradient_accumulation_steps": 4}
QUANTIZE = {"model_name_or_path": "m", "dataset_name_or_path": "d", "output_dir": "o", "do_ptq": True}


@pytest.mark.parametrize(
    ("arguments", "name", "msg", "hint"),
    [
        (
            {"sharding": "stage1 offload"},
            "sharding",
            "got 'stage1 offload', expected one of stage1, stage2, stage3",
            "Offloading is not supported: leave the word out.",
        ),
        (
            {"sharding": "stage2", **PIPELINE},
            "sharding",
            "stage2 with pipeline_parallel_degree 4, expected stage1: a pipeline adds up the gradients of "
            "several micro-batches, so they have to be whole on each of its devices",
            "Set sharding to stage1, or pipeline_parallel_degree to 1.",
        ),
        (
            {"sharding": "stage3", "sharding_parallel_degree": 2, **PIPELINE},
            "sharding",
            "stage3 with pipeline_parallel_degree 4, expected stage1: a pipeline adds up the gradients and "
            "weights of several micro-batches, so they have to be whole on each of its devices",
            None,
        ),
        (
            {"sharding": "stage3", "sharding_parallel_config": "split_param"},
            "sharding_parallel_config",
            "split_param with sharding stage3, expected stage1: the others cut by themselves",
            "Leave split_param out, or set sharding to stage1.",
        ),
        (
            {"virtual_pp_degree": 2, "pipeline_parallel_degree": 2, "gradient_accumulation_steps": 8},
            "virtual_pp_degree",
            "got 2 with pipeline_parallel_degree 2, expected a pipeline of more than 2 devices: "
            "Paddle interleaves no shorter one",
            "Set virtual_pp_degree to 1.",
        ),
        (
            {"prefix_tuning": True, **PIPELINE},
            "prefix_tuning",
            "prefix_tuning with pipeline_parallel_degree 4, expected 1",
            "Set pipeline_parallel_degree to 1.",
        ),
        (
            {"eval_with_do_generation": True, "do_eval": True, **PIPELINE},
            "eval_with_do_generation",
            "true with pipeline_parallel_degree 4, expected 1: a pipeline writes no text",
            "Set it to false, and let a job of task evaluate measure the result on one device.",
        ),
        (
            {"sep_parallel_degree": 2},
            "sep_parallel_degree",
            "got 2: not available in this version: segment parallelism",
            None,
        ),
        (
            {"context_parallel_degree": 2},
            "context_parallel_degree",
            "got 2: not available in this version: context parallelism",
            None,
        ),
        (
            {"expert_parallel_degree": 2},
            "expert_parallel_degree",
            "got 2: Gemma and BLOOM have no experts",
            None,
        ),
        (
            {"use_expert_parallel": True},
            "use_expert_parallel",
            "got true: Gemma and BLOOM have no experts",
            None,
        ),
    ],
)
def test_what_cannot_be_split_like_that_is_refused(
    read: Read, arguments: dict[str, Any], name: str, msg: str, hint: str | None
) -> None:
    reading = read(**arguments)
    assert reading.config is None
    (problem,) = reading.problems
    assert (problem.loc, problem.msg) == ((name,), msg)
    assert problem.hint
    assert hint in (None, problem.hint)


def test_quantization_takes_one_device() -> None:
    problems = read_config("quantize", QUANTIZE | {"tensor_parallel_degree": 2}).problems
    assert [problem.loc for problem in problems] == [("tensor_parallel_degree",)]
    assert problems[0].msg == (
        "tensor_parallel_degree 2 = 2 devices, expected 1: task quantize takes one device"
    )


@pytest.mark.parametrize(
    ("arguments", "name", "msg"),
    [
        (
            {"sharding_parallel_degree": 8},
            "sharding_parallel_degree",
            "degree 8 has no effect without sharding",
        ),
        (
            {"sharding_parallel_config": "split_param"},
            "sharding_parallel_config",
            "split_param has no effect without sharding",
        ),
        (
            {"sharding": "stage1", "sharding_parallel_config": "split_param enable_stage1_overlap"},
            "sharding_parallel_config",
            '"enable_stage1_overlap" has no effect: the trainer chooses how its processes communicate',
        ),
        (
            {"sequence_parallel": True},
            "sequence_parallel",
            "true has no effect without tensor_parallel_degree, whose devices would share the sequence",
        ),
        (
            {"virtual_pp_degree": 2},
            "virtual_pp_degree",
            "2 has no effect without pipeline_parallel_degree",
        ),
        (
            {"pipeline_parallel_degree": 4},
            "gradient_accumulation_steps",
            "gradient_accumulation_steps 1 < pipeline_parallel_degree 4: each device waits 3 of 4 turns",
        ),
        (
            {"virtual_pp_degree": 2, "pipeline_parallel_degree": 4, "gradient_accumulation_steps": 3},
            "gradient_accumulation_steps",
            "gradient_accumulation_steps 3 < pipeline_parallel_degree 4: "
            "with virtual_pp_degree a step takes 4 passes, 1 of them idle",
        ),
        (
            {"pipeline_parallel_config": "enable_overlap_p2p_comm"},
            "pipeline_parallel_config",
            '"enable_overlap_p2p_comm" has no effect: the trainer chooses how its processes communicate; '
            "the result is the same",
        ),
        (
            {"tensor_parallel_degree": 2, "hybrid_parallel_topo_order": "sharding_first"},
            "hybrid_parallel_topo_order",
            '"sharding_first" has no effect: it is pp_first; the result is the same',
        ),
    ],
)
def test_what_splits_nothing_is_a_warning(read: Read, arguments: dict[str, Any], name: str, msg: str) -> None:
    reading = read(**arguments)
    assert reading.config is not None, reading.problems
    (warning,) = reading.warnings
    assert (warning.loc, warning.msg) == ((name,), msg)


@pytest.mark.parametrize(
    "arguments",
    [
        {"tensor_parallel_degree": 8, "sequence_parallel": True, "tensor_parallel_output": True},
        {"virtual_pp_degree": 2, **PIPELINE},
        {"sharding": "stage1", "sharding_parallel_config": "split_param", **PIPELINE},
        {"sharding": "stage2", "sharding_parallel_degree": 1, **PIPELINE},
        {"sharding": "stage3", "tensor_parallel_degree": 2, "sharding_parallel_degree": 2},
        {"lora": True, "tensor_parallel_degree": 2, **PIPELINE},
        {"prefix_tuning": True, "tensor_parallel_degree": 2},
        {"sep_parallel_degree": 1, "context_parallel_degree": -1, "expert_parallel_degree": 1},
        {"hybrid_parallel_topo_order": "pp_first"},
        {"recompute": True, "recompute_granularity": "full_attn", **PIPELINE},
    ],
)
def test_degrees_that_go_together_are_accepted_silently(read: Read, arguments: dict[str, Any]) -> None:
    reading = read(**arguments)
    assert reading.config is not None, reading.problems
    assert reading.warnings == ()
