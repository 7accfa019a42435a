import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ranks import run_ranks
from tests.trainer.parallel.layouts import Job, Record, begin, run_passes, train_all
from trainer.config import FinetuneConfig
from trainer.parallel.topology import Topology
from trainer.tools.tiny_model import build_tiny_model

MakeConfig = Callable[..., FinetuneConfig]

ONE = Topology()
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
PATIENCE_S = 300
ADAPTERS = "lora", "lora+", "prefix", "projected prefix"

# How the jobs that are compared between layouts differ from the plain one.
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain gradients": {"sgd": True, "steps": 4},
    "overflow": {"overflow_at": (0, 2), "steps": 4},
    "unscaled": {"steps": 3},
    "scaled": {"loss_scale": 2.0**12, "steps": 3},
    "scaled too much": {"loss_scale": 2.0**140, "steps": 3},
    "head of its own": {"unlabelled": 1, "steps": 3},
    "recomputed": {"recompute": True, "steps": 2},
    "main gradients": {"main_gradients": True, "overflow_at": (1,), "steps": 4},
    "lora with main gradients": {"adapter": "lora", "main_gradients": True, "steps": 3},
    "recomputed lora": {"adapter": "lora", "recompute": True, "steps": 3},
    **{adapter: {"adapter": adapter, "segment_size": 20, "steps": 3} for adapter in ADAPTERS},
}

#: What every rank made of every job.
Records = list[dict[str, Record]]
Run = Callable[[Topology], Records]

two = pytest.mark.parametrize("topology", TWO.values(), ids=TWO)
four = pytest.mark.parametrize("topology", FOUR.values(), ids=FOUR)

_run: dict[Topology, Records] = {}


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


@pytest.fixture
def bloom(tiny_bloom: Path) -> dict[str, Any]:
    return {"model": tiny_bloom, "options": {"hidden_dropout": 0.0, "attention_dropout": 0.0}, "steps": 4}


@pytest.fixture
def run(job: Job, untied_gemma: Path, bloom: dict[str, Any]) -> Run:
    """Runs all jobs in a layout; once for all tests, because starting it takes longer."""
    changes = {**CHANGES, "bloom": bloom}
    changes["head of its own"]["model"] = untied_gemma

    def run(topology: Topology) -> Records:
        if topology not in _run:
            jobs = {name: replace(job, topology=topology, **change) for name, change in changes.items()}
            if topology in FOUR.values():
                jobs = {"overflow": jobs["overflow"]}
            _run[topology] = run_ranks(topology.world, train_all, jobs, timeout_s=PATIENCE_S)
        return _run[topology]

    return run


def assert_alike(found: Records, name: str, expected: Mapping[str, Record], other: str | None = None) -> None:
    """In all ranks, what came of a job is what came of it (or of another one) in one process."""
    alone = expected[other or name]
    for together in (records[name] for records in found):
        np.testing.assert_allclose(together.losses, alone.losses, rtol=1e-5)
        np.testing.assert_allclose(together.norms, alone.norms, rtol=1e-4)
        np.testing.assert_allclose(together.evaluation, alone.evaluation, rtol=1e-5)


@two
@pytest.mark.parametrize("name", ["plain", "bloom"])
def test_losses_and_norms_of_adamw_are_those_of_one_process(run: Run, name: str, topology: Topology) -> None:
    (alone,) = run(ONE)
    assert max(alone[name].norms) > 1.0  # so gradients are clipped
    assert_alike(run(topology), name, alone)


@two
def test_weights_after_plain_gradient_steps_are_those_of_one_process(run: Run, topology: Topology) -> None:
    (alone,) = run(ONE)
    expected = alone["plain gradients"].weights
    for found in (records["plain gradients"].weights for records in run(topology)):
        assert found.keys() == expected.keys()
        for name, weight in expected.items():
            np.testing.assert_allclose(found[name], weight, rtol=0, atol=1e-6, err_msg=name)


@two
def test_a_step_whose_gradients_overflow_changes_nothing_and_later_ones_are_fine(
    run: Run, topology: Topology
) -> None:
    (alone,) = run(ONE)
    norms = alone["overflow"].norms
    assert [step for step, norm in enumerate(norms) if not math.isfinite(norm)] == [0, 2]
    assert_alike(run(topology), "overflow", alone)


@two
def test_a_loss_scale_changes_nothing(run: Run, topology: Topology) -> None:
    (alone,) = run(ONE)
    assert_alike(run(topology), "scaled", alone, "unscaled")
    assert {records["scaled"].loss_scale for records in run(topology)} == {2.0**12}


@two
def test_a_loss_scale_falls_until_gradients_are_finite(run: Run, topology: Topology) -> None:
    name = "scaled too much"
    (alone,) = run(ONE)
    assert [math.isfinite(norm) for norm in alone[name].norms] == [False, True, True]
    assert_alike(run(topology), name, alone)
    assert {records[name].loss_scale for records in run(topology)} == {2.0**70}


@two
def test_a_head_of_its_own_and_a_micro_batch_without_labels_stop_nobody(run: Run, topology: Topology) -> None:
    assert_alike(run(topology), "head of its own", run(ONE)[0])


@two
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_adapters_train_as_in_one_process_and_leave_the_base_alone(
    run: Run, adapter: str, topology: Topology
) -> None:
    (alone,) = run(ONE)
    assert_alike(run(topology), adapter, alone)
    expected = alone[adapter].weights
    for found in (records[adapter].weights for records in run(topology)):
        frozen = [name for name in found if "lora" not in name and "prefix" not in name]
        assert all((found[name] == expected[name]).all() for name in frozen)


@two
@pytest.mark.parametrize("name", ["recomputed", "recomputed lora"])
def test_recomputed_activations_are_the_same_everywhere(run: Run, name: str, topology: Topology) -> None:
    assert_alike(run(topology), name, run(ONE)[0])


@two
@pytest.mark.parametrize("name", ["main gradients", "lora with main gradients"])
def test_gradients_that_add_up_in_float32_beside_the_parameters_change_nothing(
    run: Run, name: str, topology: Topology
) -> None:
    assert_alike(run(topology), name, run(ONE)[0])


@four
def test_mixed_layouts_train_as_one_process(run: Run, topology: Topology) -> None:
    assert_alike(run(topology), "overflow", run(ONE)[0])


def gathered_after_backward(job: Job) -> set[str]:
    engine, updater = begin(job)
    run_passes(engine, updater, job, 0)
    return {name for name, p in engine.model.named_parameters() if getattr(p, "status", "part") == "all"}


def test_in_stage_3_frozen_weights_do_not_gather_in_the_backward_pass(job: Job) -> None:
    job = replace(job, adapter="lora", topology=SHARDED["stage 3"])
    for gathered in run_ranks(2, gathered_after_backward, job):
        # Only layers whose input has no gradient are let go later: those that read the embeddings.
        assert all(name.startswith("model.layers.0.self_attn") for name in gathered)
