"""Rules between the arguments that split the work over devices, as in `trainer.config.rules`.

What the number of devices or the model's sizes decide is told elsewhere: `trainer.config.topology` and
`trainer.config.splitting`.
"""

from collections.abc import Iterator
from typing import Any

from trainer.config.problems import Problem
from trainer.config.rulebook import problem, warning
from trainer.config.schema import DEGREES

SPLIT_PARAM = "split_param"

#: Paddle's interleaved schedules are for pipelines of more devices than this.
MOST_WITHOUT_CHUNKS = 2


@problem("sharding")
def one_sharding_stage(config: Any) -> Iterator[Problem]:
    words = config.sharding.split()
    if "offload" in words or len(words) > 1:
        yield Problem(
            ("sharding",),
            f"got {config.sharding[:60]!r}, expected one of stage1, stage2, stage3",
            "Offloading is not supported: leave the word out.",
        )


@problem("sharding", "sharding_parallel_degree", "pipeline_parallel_degree")
def a_pipeline_shares_out_optimizer_state_only(config: Any) -> Iterator[Problem]:
    stage, pipeline = config.sharding, config.pipeline_parallel_degree
    if stage in ("stage2", "stage3") and config.sharding_parallel_degree != 1 and pipeline > 1:
        shared = "gradients" if stage == "stage2" else "gradients and weights"
        msg = f"{stage} with pipeline_parallel_degree {pipeline}, expected stage1: a pipeline adds up the"
        msg += f" {shared} of several micro-batches, so they have to be whole on each of its devices"
        yield Problem(("sharding",), msg, "Set sharding to stage1, or pipeline_parallel_degree to 1.")


@problem("sharding", "sharding_parallel_config")
def only_stage_1_cuts_parameters(config: Any) -> Iterator[Problem]:
    if SPLIT_PARAM in config.sharding_parallel_config.split() and config.sharding in ("stage2", "stage3"):
        msg = f"split_param with sharding {config.sharding}, expected stage1: the others cut by themselves"
        yield Problem(("sharding_parallel_config",), msg, "Leave split_param out, or set sharding to stage1.")


@problem("virtual_pp_degree", "pipeline_parallel_degree")
def chunks_need_a_longer_pipeline(config: Any) -> Iterator[Problem]:
    if config.virtual_pp_degree > 1 and config.pipeline_parallel_degree == MOST_WITHOUT_CHUNKS:
        msg = f"got {config.virtual_pp_degree} with pipeline_parallel_degree {MOST_WITHOUT_CHUNKS}, expected"
        msg += f" a pipeline of more than {MOST_WITHOUT_CHUNKS} devices: Paddle interleaves no shorter one"
        yield Problem(("virtual_pp_degree",), msg, "Set virtual_pp_degree to 1.")


@problem("prefix_tuning", "pipeline_parallel_degree")
def no_prefix_in_a_pipeline(config: Any) -> Iterator[Problem]:
    if config.prefix_tuning and config.pipeline_parallel_degree > 1:
        msg = f"prefix_tuning with pipeline_parallel_degree {config.pipeline_parallel_degree}, expected 1"
        yield Problem(("prefix_tuning",), msg, "Set pipeline_parallel_degree to 1.")


@problem("eval_with_do_generation", "pipeline_parallel_degree")
def no_generation_in_a_pipeline(config: Any) -> Iterator[Problem]:
    if config.eval_with_do_generation and config.pipeline_parallel_degree > 1:
        msg = f"true with pipeline_parallel_degree {config.pipeline_parallel_degree}, expected 1: a pipeline"
        msg += " writes no text"
        hint = "Set it to false, and let a job of task evaluate measure the result on one device."
        yield Problem(("eval_with_do_generation",), msg, hint)


@problem("sharding", "sharding_parallel_degree", *DEGREES)
def quantization_takes_one_device(config: Any) -> Iterator[Problem]:
    degrees = config.parallel_degrees()
    if config.task == "quantize" and degrees:
        product = " x ".join(f"{name} {degree}" for name, degree in degrees.items())
        msg = f"{product} = {config.world_size()} devices, expected 1: task quantize takes one device"
        yield Problem((next(iter(degrees)),), msg, "Set these degrees to 1 or leave them out.")


@warning("sharding", "sharding_parallel_degree")
def degree_without_sharding(config: Any) -> Iterator[Problem]:
    if config.sharding_parallel_degree > 1 and not config.sharding:
        msg = f"degree {config.sharding_parallel_degree} has no effect without sharding"
        yield Problem(("sharding_parallel_degree",), msg, "Set sharding too, or leave the degree out.")


@warning("sharding", "sharding_parallel_config")
def cutting_without_sharding(config: Any) -> Iterator[Problem]:
    if SPLIT_PARAM in config.sharding_parallel_config.split() and not config.sharding:
        msg = "split_param has no effect without sharding"
        yield Problem(("sharding_parallel_config",), msg, "Set sharding to stage1.")


@warning("sequence_parallel", "tensor_parallel_degree")
def sequences_are_split_by_tensor_parallelism(config: Any) -> Iterator[Problem]:
    if config.sequence_parallel and config.tensor_parallel_degree <= 1:
        msg = "true has no effect without tensor_parallel_degree, whose devices would share the sequence"
        yield Problem(("sequence_parallel",), msg, "Set tensor_parallel_degree too, or leave it out.")


@warning("virtual_pp_degree", "pipeline_parallel_degree")
def chunks_without_a_pipeline(config: Any) -> Iterator[Problem]:
    if config.virtual_pp_degree > 1 and config.pipeline_parallel_degree <= 1:
        msg = f"{config.virtual_pp_degree} has no effect without pipeline_parallel_degree"
        yield Problem(("virtual_pp_degree",), msg, "Set pipeline_parallel_degree too, or leave it out.")


@warning("pipeline_parallel_degree", "gradient_accumulation_steps", "virtual_pp_degree", "do_train")
def a_pipeline_that_mostly_waits(config: Any) -> Iterator[Problem]:
    batches, pipeline = config.gradient_accumulation_steps, config.pipeline_parallel_degree
    if not config.do_train or batches >= pipeline:
        return
    few = f"gradient_accumulation_steps {batches} < pipeline_parallel_degree {pipeline}"
    if config.virtual_pp_degree > 1:
        idle = pipeline - batches
        msg = f"{few}: with virtual_pp_degree a step takes {pipeline} passes, {idle} of them idle"
    else:
        # 1F1B: of batches + pipeline - 1 turns a device works in `batches` (Narayanan et al. 2021).
        turns = batches + pipeline - 1
        msg = f"{few}: each device waits {turns - batches} of {turns} turns"
    hint = f"Set gradient_accumulation_steps to {pipeline}, and lower per_device_train_batch_size."
    yield Problem(("gradient_accumulation_steps",), msg, hint)
