import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ranks import run_ranks
from tests.trainer.parallel.layouts import Job, Record, begin, run_passes, train
from trainer.config import FinetuneConfig
from trainer.parallel.topology import Topology
from trainer.tools.tiny_model import build_tiny_model

MakeConfig = Callable[..., FinetuneConfig]

SHARDED = {
    "stage 1": Topology(sharding=2, stage=1),
    "split stage 1": Topology(sharding=2, stage=1, split_param=True),
    "stage 2": Topology(sharding=2, stage=2),
    "stage 3": Topology(sharding=2, stage=3),
}
TWO = {"data": Topology(data=2), **SHARDED}
FOUR = {f"data x {name}": replace(topology, data=2) for name, topology in SHARDED.items()} | {
    f"tensor x {name}": replace(topology, tensor=2) for name, topology in TWO.items()
}

two = pytest.mark.parametrize("topology", TWO.values(), ids=TWO)
four = pytest.mark.parametrize("topology", FOUR.values(), ids=FOUR)

# What one process made of a job, by the job without its folders.
_alone: dict[str, Record] = {}


@pytest.fixture
def job(tiny_gemma: Path, make_config: MakeConfig) -> Job:
    return Job(tiny_gemma, make_config(weight_decay=0.1, max_grad_norm=1.0))


@pytest.fixture(scope="session")
def untied_gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(
        "gemma",
        tmp_path_factory.mktemp("models") / "untied-gemma",
        vocab_size=512,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        tie_word_embeddings=False,
    )


def alone(job: Job) -> Record:
    key = repr(
        replace(job, config=job.config.model_copy(update={"output_dir": ""}), model=Path(job.model.name))
    )
    if key not in _alone:
        (_alone[key],) = run_ranks(1, train, job)
    return _alone[key]


def together(job: Job, topology: Topology) -> list[Record]:
    return run_ranks(topology.world, train, replace(job, topology=topology))


def assert_alike(found: Record, expected: Record) -> None:
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-5)
    np.testing.assert_allclose(found.norms, expected.norms, rtol=1e-4)
    np.testing.assert_allclose(found.evaluation, expected.evaluation, rtol=1e-5)


@two
def test_losses_and_norms_of_adamw_are_those_of_one_process(job: Job, topology: Topology) -> None:
    expected = alone(job)
    assert max(expected.norms) > 1.0  # so gradients are clipped
    for found in together(job, topology):
        assert_alike(found, expected)


@two
def test_weights_after_plain_gradient_steps_are_those_of_one_process(job: Job, topology: Topology) -> None:
    job = replace(job, sgd=True)
    expected = alone(job)
    for found in together(job, topology):
        assert found.weights.keys() == expected.weights.keys()
        for name, weight in expected.weights.items():
            np.testing.assert_allclose(found.weights[name], weight, rtol=0, atol=1e-6, err_msg=name)


@two
def test_a_step_whose_gradients_overflow_changes_nothing_and_later_ones_are_fine(
    job: Job, topology: Topology
) -> None:
    job = replace(job, overflow_at=(0, 3), steps=6)
    expected = alone(job)
    assert [step for step, norm in enumerate(expected.norms) if not math.isfinite(norm)] == [0, 3]
    for found in together(job, topology):
        assert_alike(found, expected)


@two
def test_a_loss_scale_changes_nothing_but_falls_until_gradients_are_finite(
    job: Job, topology: Topology
) -> None:
    plain = alone(replace(job, steps=4))
    for found in together(replace(job, loss_scale=2.0**12, steps=4), topology):
        assert found.loss_scale == 2.0**12
        assert_alike(found, plain)
    absurd = replace(job, loss_scale=2.0**140, steps=4)
    expected = alone(absurd)
    assert [math.isfinite(norm) for norm in expected.norms] == [False, True, True, True]
    for found in together(absurd, topology):
        assert found.loss_scale == expected.loss_scale == 2.0**70
        assert_alike(found, expected)


@two
def test_a_head_of_its_own_and_a_micro_batch_without_labels_stop_nobody(
    job: Job, untied_gemma: Path, topology: Topology
) -> None:
    job = replace(job, model=untied_gemma, unlabelled=1, steps=3)
    expected = alone(job)
    for found in together(job, topology):
        assert_alike(found, expected)


@pytest.mark.parametrize("adapter", ["lora", "lora+", "prefix", "projected prefix"])
@pytest.mark.parametrize("topology", SHARDED.values(), ids=SHARDED)
def test_adapters_train_as_in_one_process_and_leave_the_base_alone(
    job: Job, adapter: Any, topology: Topology
) -> None:
    job = replace(job, adapter=adapter, steps=4, segment_size=20)
    expected = alone(job)
    for found in together(job, topology):
        assert_alike(found, expected)
        frozen = [name for name in found.weights if "lora" not in name and "prefix" not in name]
        assert all((found.weights[name] == expected.weights[name]).all() for name in frozen)


@two
@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_gradients_that_add_up_in_float32_beside_the_parameters_change_nothing(
    job: Job, topology: Topology, adapter: Any
) -> None:
    job = replace(job, steps=4, overflow_at=(1,), adapter=adapter)
    for found in together(replace(job, main_gradients=True), topology):
        assert_alike(found, alone(job))


def gathered_after_backward(job: Job) -> set[str]:
    engine, updater = begin(job)
    run_passes(engine, updater, job, 0)
    return {name for name, p in engine.model.named_parameters() if getattr(p, "status", "part") == "all"}


def test_in_stage_3_frozen_weights_do_not_gather_in_the_backward_pass(job: Job) -> None:
    job = replace(job, adapter="lora", topology=SHARDED["stage 3"])
    for gathered in run_ranks(2, gathered_after_backward, job):
        # Only layers whose input has no gradient are let go later: those that read the embeddings.
        assert all(name.startswith("model.layers.0.self_attn") for name in gathered)


@pytest.mark.parametrize("name", ["stage 2", "stage 3"])
@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_recomputed_activations_change_nothing(job: Job, name: str, adapter: Any) -> None:
    job = replace(job, steps=3, adapter=adapter)
    for found in together(replace(job, recompute=True), SHARDED[name]):
        assert_alike(found, alone(job))


@pytest.mark.parametrize("name", ["stage 1", "split stage 1", "stage 3"])
def test_bloom_trains_as_in_one_process(tiny_bloom: Path, make_config: MakeConfig, name: str) -> None:
    options = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    job = Job(tiny_bloom, make_config(weight_decay=0.1), options=options)
    for found in together(job, SHARDED[name]):
        assert_alike(found, alone(job))


@four
def test_mixed_layouts_train_as_one_process(job: Job, topology: Topology) -> None:
    job = replace(job, overflow_at=(2,))
    for found in together(job, topology):
        assert_alike(found, alone(job))
