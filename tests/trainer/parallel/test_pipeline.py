"""Pipelines give the outcomes and the gradients of one process.

Gradients are compared by the names of the tensors in the files.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import Tensor

from tests.ranks import run_ranks
from trainer.config.adapters import LoraSettings
from trainer.config.topology import Topology
from trainer.loop.engine import SingleEngine
from trainer.models.base import CausalLM
from trainer.models.bloom.configuration import BloomConfig
from trainer.models.bloom.modeling import Bloom
from trainer.models.gemma.configuration import GemmaConfig
from trainer.models.gemma.modeling import Gemma
from trainer.models.passes import LogProbabilityPass, LossPass, MetricsPass, Pass, Passes
from trainer.models.placement import WHOLE, Placement
from trainer.models.recompute import Granularity, recompute_activations
from trainer.ops.packing import Packing
from trainer.parallel.layout import start
from trainer.parallel.pipeline import PipelineEngine
from trainer.parallel.pipeline_stages import stages_of
from trainer.peft.lora.adapter import add_lora

VOCABULARY = 48


@dataclass(frozen=True)
class Case:
    """A model, and the lengths of the documents of each micro-batch of each step."""

    family: str = "gemma"
    layers: int = 4
    tied: bool = True
    frozen: tuple[str, ...] = ()
    lora: bool = False
    again: Granularity | None = None
    steps: tuple[tuple[tuple[int, ...], ...], ...] = (((5, 3), (9,), (4, 2, 1), (7,)),)


def empty_model(case: Case, placement: Placement) -> CausalLM:
    """A model of a case, without its weights."""
    sizes: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 4, "vocab_size": VOCABULARY}
    if case.family == "bloom":
        config = BloomConfig(num_hidden_layers=case.layers, tie_word_embeddings=case.tied, **sizes)
        return Bloom(config, placement)
    config = GemmaConfig(
        num_hidden_layers=case.layers,
        tie_word_embeddings=case.tied,
        intermediate_size=24,
        num_key_value_heads=2,
        head_dim=4,
        **sizes,
    )
    return Gemma(config, placement)


def model_of(case: Case, placement: Placement = WHOLE, salt: str = "") -> CausalLM:
    """A model whose weights depend on their names alone, wherever they are."""
    model = empty_model(case, placement)
    weights = dict(model.parameter_names())
    if case.lora:
        add_lora(model, LoraSettings(2, 4), seed=1)
        weights |= model.trained_weights()
    for name, weight in weights.items():
        random = np.random.default_rng(zlib.crc32(f"{salt}{name}".encode()))
        values = paddle.to_tensor(random.normal(0.0, 0.2, weight.disk_shape).astype(np.float32))
        weight.put(values, weight.parameter)
    for name, weight in model.trained_weights().items():
        weight.parameter.stop_gradient = any(part in name for part in case.frozen)
    if case.again:
        recompute_activations(model, case.again)
    return model


@dataclass
class Found:
    """What a process gives back: outcomes of every call, and gradients after every step by name."""

    data_rank: int = 0
    outcomes: list[list[np.ndarray]] = field(default_factory=list)
    gradients: list[dict[str, np.ndarray]] = field(default_factory=list)


def packed(number: int, lengths: Sequence[int], kind: type[Pass]) -> Pass:
    random = np.random.default_rng(number)
    tokens = sum(lengths)
    positions = np.concatenate([np.arange(length) for length in lengths]).astype(np.int64)
    labels = random.integers(0, VOCABULARY, tokens)
    labels[random.random(tokens) < 0.2] = -100
    more: dict[str, Any] = {}
    if kind is LogProbabilityPass:
        documents = np.repeat(np.arange(len(lengths)) + 1, lengths)
        more = {"responses": paddle.to_tensor(documents), "count": len(lengths)}
    return kind(
        ids=paddle.to_tensor(random.integers(0, VOCABULARY, tokens)),
        packing=Packing((1, tokens), tuple(lengths), positions, None),
        labels=paddle.to_tensor(labels),
        **more,
    )


def passes_of(step: Sequence[Sequence[int]], kind: type[Pass]) -> Passes:
    made = [packed(number, lengths, kind) for number, lengths in enumerate(step)]
    return Passes([work.size for work in made], made.__getitem__)


def share(number: int, outcome: Tensor) -> Tensor:
    return paddle.sqrt((outcome**2).sum() + 1.0) * (number + 1)


def gradients_of(model: CausalLM) -> dict[str, np.ndarray]:
    return {
        name: weight.turned(weight.parameter.grad).numpy()
        for name, weight in model.trained_weights().items()
        if weight.parameter.grad is not None
    }


def go_through(engine: Any, case: Case) -> Found:
    """Train on every step, evaluating before and after each."""
    found = Found()
    for step in case.steps:
        calls = [
            engine.outcomes(passes_of(step, MetricsPass)),
            engine.train(passes_of(step, LogProbabilityPass), share, 0.5),
            engine.outcomes(passes_of(step[1:], LossPass)),
        ]
        found.outcomes += [[outcome.numpy() for outcome in call] for call in calls]
        found.gradients.append(gradients_of(engine.model))
        for parameter in engine.model.parameters():
            parameter.clear_gradient(set_to_zero=False)
    return found


def in_pipeline(topology: Topology, case: Case) -> Found:
    """Runs in each process."""
    layout = start(topology, 0)
    stages = stages_of(topology, layout.pipeline_rank, case.layers)
    found = go_through(PipelineEngine(model_of(case, Placement(stages=stages)), layout), case)
    return replace(found, data_rank=layout.data_rank)


def compare(topology: Topology, case: Case) -> None:
    expected = go_through(SingleEngine(model_of(case)), case)
    processes = run_ranks(topology.world, in_pipeline, topology, case)
    for found in processes:
        assert found.outcomes == [
            [pytest.approx(outcome, rel=1e-5) for outcome in call] for call in expected.outcomes
        ]
    for step, gradients in enumerate(expected.gradients):
        compare_gradients(
            topology, [(found.data_rank, found.gradients[step]) for found in processes], gradients
        )


def compare_gradients(
    topology: Topology, found: list[tuple[int, dict[str, np.ndarray]]], expected: dict[str, np.ndarray]
) -> None:
    """Every process of a pipeline has the gradients of its tensors; the optimizer averages over pipelines."""
    assert {name for _, gradients in found for name in gradients} == expected.keys()
    for name, gradient in expected.items():
        by_pipeline = [
            [gradients[name] for data_rank, gradients in found if data_rank == way and name in gradients]
            for way in range(topology.data_ways)
        ]
        for copies in zip(*by_pipeline, strict=True):
            error = np.abs(np.mean(copies, axis=0) - gradient).max()
            assert error <= 1e-5 * np.abs(gradient).max(), name


@pytest.mark.parametrize("pipeline", [2, 4])
def test_pipelines_give_the_outcomes_and_gradients_of_one_process(pipeline: int) -> None:
    compare(Topology(pipeline=pipeline), Case())


def test_chunks_in_turn_give_the_same() -> None:
    steps = tuple(tuple((3 + number % 3, 2) for number in range(count)) for count in (9, 3, 5))
    compare(Topology(pipeline=4, virtual=2), Case(layers=8, steps=steps))


def test_steps_may_differ_in_the_number_and_the_lengths_of_micro_batches() -> None:
    steps = (((5, 3), (9,), (4, 2, 1), (7,)), ((2,),), ((11, 1), (3,), (6,)))
    compare(Topology(pipeline=2), Case(steps=steps))


def test_a_head_of_its_own_is_trained_in_the_last_process() -> None:
    compare(Topology(pipeline=2), Case(tied=False))


@pytest.mark.parametrize(
    "frozen",
    [
        ("embed_tokens",),
        ("embed_tokens", "layers.0", "layers.1"),
        ("embed_tokens", "layers.2", "layers.3", "norm"),
    ],
)
def test_frozen_parameters_may_be_anywhere(frozen: tuple[str, ...]) -> None:
    compare(Topology(pipeline=2), Case(frozen=frozen))


def test_an_adapter_is_trained_on_frozen_layers() -> None:
    compare(Topology(pipeline=2), Case(lora=True))


@pytest.mark.parametrize("again", ["full", "full_attn", "core_attn"])
def test_activations_may_be_computed_again(again: Granularity) -> None:
    compare(Topology(pipeline=2), Case(again=again))
    compare(Topology(pipeline=2), Case(again=again, lora=True))


def test_the_other_family_gives_the_same() -> None:
    compare(Topology(pipeline=2), Case(family="bloom"))


def with_another_model(topology: Topology, case: Case) -> list[list[float]]:
    """Runs in each process: the outcomes of two pipelines, taken in turn."""
    layout = start(topology, 0)
    placement = Placement(stages=stages_of(topology, layout.pipeline_rank, case.layers))
    trained = PipelineEngine(model_of(case, placement), layout)
    reference = PipelineEngine(model_of(case, placement, salt="reference"), layout)
    step = case.steps[0]
    calls = [
        reference.outcomes(passes_of(step, LogProbabilityPass)),
        trained.train(passes_of(step, LogProbabilityPass), share),
        reference.outcomes(passes_of(step, LogProbabilityPass)),
        trained.outcomes(passes_of(step, LogProbabilityPass)),
    ]
    return [[float(value) for outcome in call for value in outcome] for call in calls]


def test_a_second_model_may_run_beside_the_trained_one() -> None:
    case, topology = Case(), Topology(pipeline=2)
    passes = passes_of(case.steps[0], LogProbabilityPass)
    expected = [
        [float(value) for work in passes for value in model.run(work)]
        for model in (model_of(case, salt="reference"), model_of(case))
    ]
    for found in run_ranks(topology.world, with_another_model, topology, case):
        assert found == [pytest.approx(expected[number], rel=1e-5) for number in (0, 1, 0, 1)]


def test_several_pipelines_share_the_micro_batches_out() -> None:
    steps = (((5, 3), (9,), (4, 2, 1), (7,)), ((2, 2),), ((3,), (4,), (5,)))
    compare(Topology(pipeline=2, data=2), Case(steps=steps))
    compare(Topology(pipeline=2, sharding=2, stage=1), Case(steps=steps))
