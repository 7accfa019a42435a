from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.ranks import run_ranks
from tests.trainer.parallel.layouts import Job, Record, train
from trainer.config import FinetuneConfig
from trainer.parallel.topology import Topology

MakeConfig = Callable[..., FinetuneConfig]

TWO = {
    "data": Topology(data=2),
    "stage 1": Topology(sharding=2, stage=1),
    "split stage 1": Topology(sharding=2, stage=1, split_param=True),
    "stage 2": Topology(sharding=2, stage=2),
    "stage 3": Topology(sharding=2, stage=3),
}


@pytest.fixture
def job(tiny_gemma: Path, make_config: MakeConfig) -> Job:
    return Job(tiny_gemma, make_config(weight_decay=0.1, max_grad_norm=1.0))


def in_ranks(job: Job, topology: Topology) -> list[Record]:
    return run_ranks(topology.world, train, replace(job, topology=topology))


def assert_same(found: Record, expected: Record) -> None:
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-5)
    np.testing.assert_allclose(found.norms, expected.norms, rtol=1e-4)
    np.testing.assert_allclose(found.evaluation, expected.evaluation, rtol=1e-5)


@pytest.mark.parametrize("name", TWO)
def test_losses_and_norms_of_adamw_are_those_of_one_process(job: Job, name: str) -> None:
    (expected,) = run_ranks(1, train, job)
    for found in in_ranks(job, TWO[name]):
        assert_same(found, expected)
