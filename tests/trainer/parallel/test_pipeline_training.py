"""Pipelines with an optimizer: steps of AdamW, clipped, are those of one process."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.ranks import run_ranks
from tests.trainer.parallel.layouts import (
    Job,
    Record,
    add_adapter,
    evaluate,
    make_sgd,
    take_step,
    train,
)
from trainer.config import FinetuneConfig
from trainer.loop.layouts import placement
from trainer.loop.precision import FullPrecision
from trainer.models import load_model
from trainer.parallel.layout import start
from trainer.parallel.pipeline import PipelineEngine
from trainer.parallel.topology import Topology
from trainer.parallel.update_choice import make_updater
from trainer.tools.tiny_model import build_tiny_model

MakeConfig = Callable[..., FinetuneConfig]
PIPELINE = Topology(pipeline=2)

# What one process made of a job, by the job without its output folder.
_alone: dict[str, Record] = {}


@pytest.fixture
def job(tiny_gemma: Path, make_config: MakeConfig) -> Job:
    return Job(tiny_gemma, make_config(weight_decay=0.1, max_grad_norm=1.0), steps=4)


class Found(NamedTuple):
    """What a process gives back, as in `Record`."""

    losses: Sequence[float]
    norms: Sequence[float]
    evaluation: Sequence[float]
    weights: dict[str, np.ndarray]


def train_in_pipeline(job: Job) -> Found:
    """Runs in each process."""
    layout = start(job.topology, seed=0)
    model = load_model(job.model, options=job.options, place=partial(placement, layout))
    add_adapter(model, job)
    engine = PipelineEngine(model, layout)
    updater = make_updater(model, job.config, FullPrecision(), layout, tied=engine.tied)
    if job.sgd:
        make_sgd(updater)
    steps = [take_step(engine, updater, job, step) for step in range(job.steps)]
    weights = {name: parameter.numpy() for name, parameter in model.named_parameters()}
    losses, norms = zip(*steps, strict=True)
    return Found(losses, norms, evaluate(engine, job), weights)


def alone(job: Job) -> Record:
    key = repr(replace(job, config=job.config.model_copy(update={"output_dir": ""})))
    if key not in _alone:
        (_alone[key],) = run_ranks(1, train, job)
    return _alone[key]


def compare(job: Job, topology: Topology) -> None:
    expected = alone(job)
    found = run_ranks(topology.world, train_in_pipeline, replace(job, topology=topology))
    for record in found:
        np.testing.assert_allclose(record.losses, expected.losses, rtol=1e-5)
        np.testing.assert_allclose(record.norms, expected.norms, rtol=1e-4)
        np.testing.assert_allclose(record.evaluation, expected.evaluation, rtol=1e-5)
    if topology.tensor == 1:
        compare_weights(found, expected, job)


def compare_weights(found: list[Found], expected: Record, job: Job) -> None:
    names = {name for record in found for name in record.weights}
    assert names == expected.weights.keys()
    if job.sgd:
        for record in found:
            for name, weight in record.weights.items():
                np.testing.assert_allclose(weight, expected.weights[name], rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "topology",
    [
        PIPELINE,
        replace(PIPELINE, data=2),
        replace(PIPELINE, sharding=2, stage=1),
        replace(PIPELINE, sharding=2, stage=1, split_param=True),
    ],
    ids=["alone", "data parallel", "stage 1", "split stage 1"],
)
def test_losses_and_norms_of_adamw_are_those_of_one_process(job: Job, topology: Topology) -> None:
    compare(job, topology)


@pytest.mark.parametrize("sharding", [1, 2])
def test_weights_after_plain_gradient_steps_are_those_of_one_process(job: Job, sharding: int) -> None:
    topology = replace(PIPELINE, sharding=sharding, stage=int(sharding > 1))
    compare(replace(job, sgd=True), topology)


def test_a_step_whose_gradients_overflow_changes_nothing(job: Job) -> None:
    compare(replace(job, overflow_at=(1,)), PIPELINE)


@pytest.mark.parametrize(
    "topology",
    [PIPELINE, replace(PIPELINE, sharding=2, stage=1), replace(PIPELINE, tensor=2)],
    ids=["alone", "stage 1", "tensor parallel"],
)
def test_adapters_train_as_in_one_process(job: Job, topology: Topology) -> None:
    compare(replace(job, adapter="lora"), topology)


def test_tensor_parallelism_splits_the_layers_of_a_pipeline(job: Job) -> None:
    compare(job, replace(PIPELINE, tensor=2))
    compare(job, replace(PIPELINE, tensor=2, sequence_parallel=True))


@pytest.mark.parametrize("tied", [True, False])
def test_a_micro_batch_without_labels_stops_nobody(job: Job, tmp_path: Path, tied: bool) -> None:
    model = build_tiny_model(
        "gemma",
        tmp_path / "model",
        vocab_size=512,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        tie_word_embeddings=tied,
    )
    job = replace(job, model=model, unlabelled=1, steps=3)
    compare(job, PIPELINE)
    compare(job, replace(PIPELINE, sharding=4, stage=1))
