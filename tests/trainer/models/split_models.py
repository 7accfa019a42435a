"""What tests of tensor parallelism share: small models on one rank, and everything they compute."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from trainer.models import CausalLM, new_model
from trainer.models.bloom.configuration import BloomConfig
from trainer.models.configuration import ModelConfig
from trainer.models.gemma.configuration import GemmaConfig
from trainer.models.passes import LogProbabilityPass, LossPass, MetricsPass
from trainer.models.placement import WHOLE, Placement, TensorRank
from trainer.ops.packing import Packing
from trainer.parallel.layout import start
from trainer.parallel.topology import Topology

#: `{tensor on disk: array}`
Arrays = dict[str, np.ndarray]
#: What one rank has: the region and the numbers of each tensor.
Parts = dict[str, tuple[tuple[slice, ...], list[int], np.ndarray]]

IDS = np.random.default_rng(5).integers(0, 61, (2, 7))
LABELS = np.where(np.arange(14).reshape(2, 7) % 4 == 1, -100, np.roll(IDS, -1))
RESPONSES = np.array([[0, 1, 1, 1, 2, 2, 2], [0, 0, 3, 3, 3, 3, 3]])
MASK = np.array([[1, 1, 1, 1, 2, 2, 2], [0, 1, 1, 1, 1, 1, 1]])


def gemma(**fields: Any) -> GemmaConfig:
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "initializer_range": 0.2}
    return GemmaConfig(**{**sizes, **heads, **fields})


def bloom(**fields: Any) -> BloomConfig:
    sizes = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6}
    return BloomConfig(**{**sizes, "initializer_range": 0.2, **fields})


def model_of(config: ModelConfig, placement: Placement = WHOLE) -> CausalLM:
    """A model in which no tensor is zero."""
    model = new_model(config, 7, placement=placement)
    for name, weight in model.parameter_names().items():
        if len(weight.disk_shape) == 1:
            generator = np.random.default_rng(zlib.crc32(name.encode()))
            weight.fill(paddle.to_tensor(generator.normal(0.5, 0.2, weight.disk_shape).astype(np.float32)))
    return model


def placement_of(ranks: int, sequence: bool) -> Placement:
    """This rank's part when all ranks split every layer; joins them."""
    layout = start(Topology(tensor=ranks, sequence_parallel=sequence), 3)
    return Placement(TensorRank(layout.tensor_rank, ranks, layout.tensor_group, sequence))


def numbers(model: CausalLM) -> Arrays:
    """Outcomes of all kinds of passes."""
    ids, labels, responses, mask = map(paddle.to_tensor, (IDS, LABELS, RESPONSES, MASK))
    packing = Packing.of(ids, None, mask)
    packed = packing.pack(ids), packing, packing.pack(labels)
    passes = {
        "loss": LossPass(*packed),
        "log-probabilities": LogProbabilityPass(*packed, packing.pack(responses), 3),
    }
    found = {name: model.run(work).numpy() for name, work in passes.items()}
    found["logits"] = model(ids, None, mask).numpy()
    with paddle.no_grad():
        found["metrics"] = model.run(MetricsPass(*packed)).numpy()
    return found


def gradients(model: CausalLM) -> Parts:
    """Gradients of a loss that is a sum of losses and of log-probabilities, after two passes."""
    ids, labels, responses, mask = map(paddle.to_tensor, (IDS, LABELS, RESPONSES, MASK))
    packing = Packing.of(ids, None, mask)
    packed = packing.pack(ids), packing, packing.pack(labels)
    model.run(LossPass(*packed)).sum().backward()
    outcome = model.run(LogProbabilityPass(*packed, packing.pack(responses), 3))
    (outcome * paddle.to_tensor([1.0, -2.0, 0.5])).sum().backward()
    return {
        name: (weight.region, weight.disk_shape, weight.turned(_gradient(weight.parameter)).numpy())
        for name, weight in model.trained_weights().items()
    }


def _gradient(parameter: paddle.Tensor) -> paddle.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def whole_of(ranks: list[Parts]) -> Arrays:
    """The tensors that all ranks have together; what several of them have must be equal."""
    found: Arrays = {}
    for parts in ranks:
        for name, (region, shape, part) in parts.items():
            tensor = found.setdefault(name, np.full(shape, np.nan, np.float32))
            there = ~np.isnan(tensor[region])
            np.testing.assert_allclose(part[there], tensor[region][there], rtol=1e-5, atol=1e-6, err_msg=name)
            tensor[region] = part
    assert not any(np.isnan(tensor).any() for tensor in found.values())
    return found


def assert_close(found: Arrays, expected: Arrays) -> None:
    """Equal but for the rounding of float32 sums in another order."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        scale = np.abs(array).max()
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6 + 3e-6 * scale, err_msg=name)


def on_rank(
    ranks: int, sequence: bool, config: ModelConfig, prepare: Callable[[CausalLM], Any] | None = None
) -> tuple[Arrays, Parts]:
    """What a rank computes; `prepare` changes its model before."""
    model = model_of(config, placement_of(ranks, sequence))
    if prepare is not None:
        prepare(model)
    return numbers(model), gradients(model)
