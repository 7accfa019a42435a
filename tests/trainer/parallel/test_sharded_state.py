from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tests.ranks import run_ranks
from tests.trainer.parallel.layouts import Job, begin, take_step
from trainer.config import FinetuneConfig
from trainer.models import load_model
from trainer.models.weights import Weight
from trainer.parallel.sharded_state import Held, Kind, Span
from trainer.parallel.topology import Topology

MakeConfig = Callable[..., FinetuneConfig]

LAYOUTS = {
    "data": Topology(data=2),
    "stage 1": Topology(sharding=2, stage=1),
    "split stage 1": Topology(sharding=2, stage=1, split_param=True),
    "stage 2": Topology(sharding=2, stage=2),
    "stage 3": Topology(sharding=2, stage=3),
    "data x stage 3": Topology(data=2, sharding=2, stage=3),
}
layouts = pytest.mark.parametrize("topology", LAYOUTS.values(), ids=LAYOUTS)

POWERS = "beta1_power", "beta2_power"
BEFORE, AFTER = 3, 3


@dataclass(frozen=True)
class Found:
    """A `Held`, as it can be sent to another process."""

    name: str
    kind: Kind
    span: Span | None
    saved_here: bool
    shape: tuple[int, ...]
    array: np.ndarray

    @classmethod
    def of(cls, held: Held) -> "Found":
        shape = tuple(held.weight.parameter.shape)
        array = held.tensor.numpy()
        if held.span is not None and not held.is_power:
            start, stop = held.span
            array = array[: stop - start]  # behind it there may be filling
        return cls(held.weight.name, held.kind, held.span, held.saved_here, shape, array)


State = dict[tuple[str, str], np.ndarray]


@pytest.fixture
def job(tiny_gemma: Path, make_config: MakeConfig) -> Job:
    return Job(tiny_gemma, make_config(weight_decay=0.1, max_grad_norm=1.0))


def train_and_tell(job: Job) -> tuple[list[Found], list[Found], int]:
    """State and weights after some steps, and how much state there was before the first."""
    engine, updater = begin(job)
    before = len(list(updater.state()))
    for step in range(BEFORE):
        take_step(engine, updater, job, step)
    return (
        [Found.of(held) for held in updater.state()],
        [Found.of(held) for held in updater.weights()],
        before,
    )


def train_unbroken(job: Job) -> list[float]:
    engine, updater = begin(job)
    return [take_step(engine, updater, job, step)[0] for step in range(BEFORE + AFTER)][BEFORE:]


def go_on(job: Job, state: State, weights: State) -> tuple[list[float], list[Found]]:
    """Losses from the given state on, and what the updater says of the state before it changes it."""
    engine, updater = begin(job)

    def read(weight: Weight, kind: Kind, span: Span | None) -> np.ndarray | None:
        array = (weights if kind == "weight" else state).get((weight.name, kind))
        if array is None or span is None or kind in POWERS:
            return array
        return array.reshape(-1)[slice(*span)]

    for held in updater.weights():
        array = read(held.weight, held.kind, held.span)
        assert array is not None
        held.put(array)
    updater.load_state(read)
    loaded = [Found.of(held) for held in updater.state()]
    return [take_step(engine, updater, job, step)[0] for step in range(BEFORE, BEFORE + AFTER)], loaded


def joined(ranks: list[list[Found]]) -> State:
    """The tensors whose parts the ranks save; fails when one part is missing or saved twice."""
    state: State = {}
    seen: State = {}
    for found in (found for rank in ranks for found in rank if found.saved_here):
        key = found.name, found.kind
        shape = (1,) if found.kind in POWERS else found.shape
        whole = state.setdefault(key, np.zeros(shape, np.float32)).reshape(-1)
        times = seen.setdefault(key, np.zeros(shape, np.float32)).reshape(-1)
        part = slice(None) if found.span is None or found.kind in POWERS else slice(*found.span)
        whole[part] = found.array.reshape(-1)
        times[part] += 1
    for key, times in seen.items():
        np.testing.assert_array_equal(times, 1, err_msg=str(key))
    return state


@layouts
def test_every_number_of_state_and_weights_is_saved_by_exactly_one_process(
    job: Job, topology: Topology
) -> None:
    ((state, weights, before),) = run_ranks(1, train_and_tell, job)
    assert before == 0
    alone, alone_weights = joined([state]), joined([weights])
    ranks = run_ranks(topology.world, train_and_tell, replace(job, topology=topology))
    together = joined([state for state, _, _ in ranks])
    assert together.keys() == alone.keys()
    assert {kind for _, kind in alone} == {"moment1", "moment2", *POWERS}
    for key, array in alone.items():
        scale = max(float(abs(array).max()), 1e-9)
        np.testing.assert_allclose(together[key] / scale, array / scale, atol=1e-3, err_msg=str(key))
    weights = joined([weights for _, weights, _ in ranks])
    assert weights.keys() == alone_weights.keys()
    for key, array in alone_weights.items():
        np.testing.assert_allclose(weights[key], array, atol=1e-3, err_msg=str(key))


@layouts
def test_training_goes_on_from_the_state_of_another_layout(job: Job, topology: Topology) -> None:
    ((state, weights, _),) = run_ranks(1, train_and_tell, job)
    (expected,) = run_ranks(1, train_unbroken, job)
    whole, whole_weights = joined([state]), joined([weights])
    ranks = run_ranks(topology.world, go_on, replace(job, topology=topology), whole, whole_weights)
    for losses, _ in ranks:
        np.testing.assert_allclose(losses, expected, rtol=1e-5)
    loaded = joined([loaded for _, loaded in ranks])
    assert loaded.keys() == whole.keys()
    for key, array in whole.items():
        np.testing.assert_array_equal(loaded[key], array, err_msg=str(key))


def test_saving_is_shared_out_among_processes_that_hold_the_same(job: Job) -> None:
    ranks = run_ranks(2, train_and_tell, replace(job, topology=Topology(data=2)))
    shares = [sum(found.array.size for found in state if found.saved_here) for state, _, _ in ranks]
    assert min(shares) > 0.2 * sum(shares)


def fresh_state(job: Job) -> tuple[list[Found], dict[str, np.ndarray]]:
    """The state before the first step, and the weights of a model that is whole."""
    model = load_model(job.model)
    _, updater = begin(job)
    updater.load_state(lambda weight, kind, span: None)
    whole = {name: weight.parameter.numpy() for name, weight in model.parameter_names().items()}
    return [Found.of(held) for held in updater.state()], whole


@layouts
def test_float32_copies_of_low_precision_weights_are_state_too(job: Job, topology: Topology) -> None:
    job = replace(job, dtype="bfloat16", topology=topology)
    ranks = run_ranks(topology.world, fresh_state, job)
    state, (_, weights) = joined([state for state, _ in ranks]), ranks[0]
    assert {kind for _, kind in state} == {"moment1", "moment2", *POWERS, "master"}
    for name, weight in weights.items():
        np.testing.assert_allclose(state[name, "master"], weight, rtol=2**-8, err_msg=name)
