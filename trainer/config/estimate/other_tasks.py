"""The memory of the tasks that do not train: quantize, merge, export. These are rough."""

from trainer.config.estimate.activations import FLOAT32, Activations, Pass, Precision
from trainer.config.estimate.architecture import Architecture
from trainer.config.estimate.memory import EVALUATION, LOADING, Memory, Parts
from trainer.config.schema import QuantizeConfig
from trainer.config.topology import ONE_PROCESS

FLOAT64 = 8


def quantize_memory(
    model: Architecture, config: QuantizeConfig, device: str, work: Pass, dev: Pass
) -> Memory:
    """The model, the hidden states of all calibration batches, and the work on one decoder layer."""
    precision = Precision.of(config, device)
    if precision.weight == FLOAT32:
        precision = Precision(device, FLOAT32, FLOAT32, FLOAT32)
    activations = Activations(model, config, ONE_PROCESS, precision)
    weights = model.parameters * precision.weight
    batches = max(_calibration_batches(config), 1)
    # Before a layer and behind it.
    states = 2 * batches * work.tokens * model.hidden * precision.compute
    layer = Parts(
        weights=weights,
        activations=states + activations.forward_only(work),
        buffers=_statistics(model, config),
    )
    found = [Memory("quantizing a layer", layer.with_overhead(device))]
    if config.do_eval:
        loss = activations.loss(dev, trained=False)
        parts = Parts(weights=weights, activations=states // 2 + activations.forward_only(dev), loss=loss)
        found.append(Memory(EVALUATION, parts.with_overhead(device)))
    return max(found, key=lambda memory: memory.total)


def merge_memory(model: Architecture) -> Memory:
    """One tensor at a time, and what the adapter adds to it."""
    largest = max(model.embedding(), *(linear.inputs * linear.outputs for linear in model.linears))
    return Memory("merging a tensor", Parts(buffers=4 * largest * FLOAT32).with_overhead("cpu"))


def export_memory(model: Architecture) -> Memory:
    """The model, and its graph with the same weights while it is written and tried."""
    parts = Parts(weights=model.parameters * FLOAT32, buffers=model.parameters * FLOAT32)
    return Memory(LOADING, parts.with_overhead("cpu"))


def _calibration_batches(config: QuantizeConfig) -> int:
    steps = [config.ptq_step if config.do_ptq else 0]
    steps += [config.gptq_step if config.do_gptq else 0, config.awq_step if config.do_awq else 0]
    steps += [config.shift_step if config.shift else 0, config.smooth_step if config.smooth else 0]
    return max(steps)


def _statistics(model: Architecture, config: QuantizeConfig) -> int:
    """GPTQ: the Hessians of the layer's inputs and two matrices to work with, float64; else the largest
    matrix, as it is tried out.
    """
    largest = max(linear.inputs * linear.outputs for linear in model.linears)
    if not config.do_gptq:
        return 2 * largest * FLOAT32
    inputs = [linear.inputs for linear in model.linears]
    distinct = sum(size * size for size in inputs)
    return (distinct + max(inputs) ** 2 + largest) * FLOAT64
