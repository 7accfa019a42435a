from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle import Tensor

from tests.ranks import run_ranks
from tests.trainer.parallel.layouts import Job, begin, tokens
from trainer.config import FinetuneConfig
from trainer.loop.engine import SingleEngine
from trainer.models import load_model
from trainer.models.passes import LogProbabilityPass, Pass, Passes
from trainer.parallel.engine import ParallelEngine
from trainer.parallel.layout import Layout
from trainer.parallel.topology import Topology

MakeConfig = Callable[..., FinetuneConfig]

COUNTS = 1, 2, 3


@pytest.fixture
def job(tiny_gemma: Path, make_config: MakeConfig) -> Job:
    return Job(tiny_gemma, make_config(max_grad_norm=0.0))


def responses(number: int) -> Pass:
    """A pass with `number` + 1 responses."""
    ids, packing, labels = tokens(0, number)
    owners = paddle.arange(labels.shape[0], dtype="int64") % (number + 1) + 1
    return LogProbabilityPass(ids, packing, labels, paddle.where(labels >= 0, owners, 0), number + 1)


def passes(count: int) -> Passes:
    return Passes([number + 1 for number in range(count)], responses)


def share(number: int, outcome: Tensor) -> Tensor:
    return -outcome.sum() * (number + 1) / 100


def run(job: Job) -> list[tuple[list[list[float]], list[list[float]], float]]:
    """For several numbers of passes: outcomes, outcomes in training, gradient norm."""
    engine, updater = begin(job)
    found = []
    for count in COUNTS:
        quiet = [outcome.tolist() for outcome in engine.outcomes(passes(count))]
        trained = [outcome.tolist() for outcome in engine.train(passes(count), share)]
        found.append((quiet, trained, updater.step(0.0)))
    return found


@pytest.mark.parametrize(
    "topology", [Topology(data=2), Topology(sharding=2, stage=2), Topology(sharding=2, stage=3)], ids=str
)
def test_outcomes_of_all_passes_are_everywhere_in_their_order_however_few_there_are(
    job: Job, topology: Topology
) -> None:
    (alone,) = run_ranks(1, run, job)
    for together in run_ranks(2, run, replace(job, topology=topology)):
        for found, expected in zip(together, alone, strict=True):
            for outcomes, others in zip(found[:2], expected[:2], strict=True):
                assert [len(outcome) for outcome in outcomes] == [len(other) for other in others]
                np.testing.assert_allclose(np.concatenate(outcomes), np.concatenate(others), rtol=1e-5)
            assert found[2] == pytest.approx(expected[2], rel=1e-4)


def test_alone_it_does_what_the_engine_of_one_process_does(job: Job) -> None:
    model = load_model(job.model)
    engine, other = ParallelEngine(model, Layout.single()), SingleEngine(model)
    assert engine.at_once == 1
    for outcome, expected in zip(engine.outcomes(passes(3)), other.outcomes(passes(3)), strict=True):
        np.testing.assert_array_equal(outcome.numpy(), expected.numpy())


def test_it_cannot_train_before_it_knows_the_updater(job: Job) -> None:
    engine = ParallelEngine(load_model(job.model), Layout.single())
    with pytest.raises(ValueError, match="no updater"):
        engine.train(passes(1), share)
