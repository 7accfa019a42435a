"""Training of a tiny model in any layout without a pipeline, for tests that compare layouts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import paddle

from trainer.config import FinetuneConfig
from trainer.config.adapters import LoraSettings
from trainer.loop.engine import SingleEngine
from trainer.loop.precision import FullPrecision, LossScale
from trainer.models import load_model
from trainer.models.base import CausalLM
from trainer.models.passes import LossPass, MetricsPass, Passes
from trainer.models.placement import Placement, TensorRank
from trainer.models.recompute import recompute_activations
from trainer.ops.packing import Packing
from trainer.parallel.clip import GradientsNotFinite
from trainer.parallel.engine import ParallelEngine
from trainer.parallel.layout import Layout, start
from trainer.parallel.topology import Topology
from trainer.parallel.update import Updater
from trainer.parallel.update_choice import make_updater
from trainer.peft.lora.adapter import add_lora
from trainer.peft.prefix.adapter import add_prefix

VOCABULARY = 500
MICRO_BATCHES = 3
SMALL_SEGMENT = 100
RATE = 1e-2


@dataclass(frozen=True)
class Job:
    """What to train and how; `topology` is all that differs between runs that must agree.

    Attributes:
        overflow_at: steps in which the loss is multiplied by infinity.
        unlabelled: number of a micro-batch that has no labels, or -1.
        sgd: whether weights change by plain gradients, so that they can be compared.
    """

    model: Path
    config: FinetuneConfig
    topology: Topology = field(default_factory=Topology)
    steps: int = 8
    sgd: bool = False
    overflow_at: tuple[int, ...] = ()
    unlabelled: int = -1
    options: Mapping[str, Any] = field(default_factory=dict)
    segment_size: int = SMALL_SEGMENT
    adapter: Literal["none", "lora", "lora+", "prefix", "projected prefix"] = "none"
    loss_scale: float = 1.0
    recompute: bool = False
    main_gradients: bool = False
    dtype: str = "float32"


@dataclass
class Record:
    """What came of it.

    Attributes:
        losses, norms: of every step; where it was skipped, what the error said of the norm.
        evaluation: of other data, with the adapter and without it.
        weights: after training, by path; as parts where tensor parallelism splits them.
        loss_scale: after training.
    """

    losses: list[float]
    norms: list[float]
    evaluation: list[float]
    weights: dict[str, np.ndarray]
    loss_scale: float


class SteepScale(LossScale):
    """Falls so far that it is no close call what overflows: over two processes losses are doubled."""

    FALL = 2.0**-70


class CpuPrecision(FullPrecision):
    """fp32, with what comes with low precision on GPUs."""

    def __init__(self, job: Job) -> None:
        self.scale = SteepScale(job.loss_scale)
        self._job = job

    @property
    def loss_scale(self) -> float:
        return self.scale.value

    @property
    def main_gradients(self) -> bool:
        return self._job.main_gradients

    @property
    def master_weights(self) -> bool:
        return self._job.dtype != "float32"

    @property
    def may_skip(self) -> bool:
        return True

    def note(self, *, overflowed: bool) -> None:
        if self._job.loss_scale != 1.0:
            self.scale.note(overflowed=overflowed)


@cache
def place_in(topology: Topology) -> Layout:
    """The place of this process, for all jobs that it works on."""
    return start(topology, seed=0)


def begin(job: Job) -> tuple[Any, Updater]:
    """What runs the model of a job and what changes it, in a rank of its topology."""
    layout = place_in(job.topology)
    model = load(job, layout)
    updater = make_updater(model, job.config, CpuPrecision(job), layout, segment_size=job.segment_size)
    if job.sgd:
        make_sgd(updater)
    return make_engine(model, updater, layout), updater


def train_all(jobs: Mapping[str, Job]) -> dict[str, Record]:
    """Runs in a rank, which is the same for all jobs."""
    return {name: train(job) for name, job in jobs.items()}


def train(job: Job) -> Record:
    """Runs in a rank."""
    engine, updater = begin(job)
    losses, norms = [], []
    for step in range(job.steps):
        loss, norm = take_step(engine, updater, job, step)
        losses.append(loss)
        norms.append(norm)
    weights = {name: local.numpy() for name, local in whole_weights(engine.model, updater).items()}
    return Record(losses, norms, evaluate(engine, job), weights, updater.loss_scale)


def load(job: Job, layout: Layout) -> CausalLM:
    topology, tensor = layout.topology, None
    if topology.tensor > 1:
        sequence = topology.sequence_parallel
        tensor = TensorRank(layout.tensor_rank, topology.tensor, layout.tensor_group, sequence)
    place = Placement(tensor=tensor)
    model = load_model(job.model, job.dtype, job.options, lambda config: place)
    add_adapter(model, job)
    if job.recompute:
        recompute_activations(model, "full")
    return model


def add_adapter(model: CausalLM, job: Job) -> None:
    match job.adapter:
        case "lora":
            add_lora(model, LoraSettings(rank=4, alpha=8.0), seed=1)
        case "lora+":
            add_lora(model, LoraSettings(rank=4, alpha=8.0), seed=1).scale_rate_of_b(4.0)
        case "prefix":
            add_prefix(model, tokens=5)
        case "projected prefix":
            add_prefix(model, tokens=5, projection=12)


def evaluate(engine: Any, job: Job) -> list[float]:
    """Losses and correct tokens of three passes, one at a time and all at once, and of the base model."""
    passes = Passes([2] * 3, lambda number: MetricsPass(*tokens(job.steps, number)))
    single = Passes([2], lambda number: MetricsPass(*tokens(job.steps, 7)))
    found = [*engine.outcomes(single), *engine.outcomes(passes)]
    if engine.model.adapter is not None:
        with engine.model.adapter.disabled():
            found += engine.outcomes(passes)
    return [value for outcome in found for value in outcome.tolist()]


def make_engine(model: CausalLM, updater: Updater, layout: Layout) -> Any:
    if layout.topology.single:
        return SingleEngine(model)
    engine = ParallelEngine(model, layout)
    engine.updater = updater
    return engine


def take_step(engine: Any, updater: Updater, job: Job, step: int) -> tuple[float, float]:
    """Loss and norm; the norm is that of the error when the step was skipped."""
    loss = run_passes(engine, updater, job, step)
    try:
        return loss, updater.step(RATE)
    except GradientsNotFinite as error:
        updater.skip()
        return loss, error.norm


def run_passes(engine: Any, updater: Updater, job: Job, step: int) -> float:
    """Forward and backward passes of a step; returns the loss."""
    made = [tokens(step, number, labelled=number != job.unlabelled) for number in range(MICRO_BATCHES)]
    count = sum(int((labels >= 0).sum()) for _, _, labels in made)
    factor = np.inf if step in job.overflow_at else 1.0
    engine.model.train()
    outcomes = engine.train(
        Passes([1] * len(made), lambda number: LossPass(*made[number])),
        lambda number, outcome: outcome.sum() / count * factor,
        updater.loss_scale,
    )
    return sum(outcome.item() for outcome in outcomes) / count


def tokens(step: int, number: int, labelled: bool = True) -> tuple[paddle.Tensor, Packing, paddle.Tensor]:
    """Two rows of random tokens; their length and the share that has labels differ."""
    random = np.random.default_rng((step, number))
    shape = 2, int(random.integers(5, 20))
    ids = random.integers(3, VOCABULARY, shape)
    kept = random.random(shape) < random.uniform(0.1, 0.9)
    labels = np.where(kept & labelled, random.integers(3, VOCABULARY, shape), -100)
    packing = Packing.of(paddle.to_tensor(ids), None, None)
    return packing.pack(paddle.to_tensor(ids)), packing, packing.pack(paddle.to_tensor(labels))


def make_sgd(updater: Updater) -> None:
    """Let the innermost optimizer subtract gradients."""
    optimizer: Any = updater.optimizer
    optimizer = getattr(optimizer, "_inner_opt", optimizer)

    def append(block: Any, pair: tuple[Any, Any]) -> None:
        parameter, gradient = pair
        rate = float(optimizer._learning_rate) * parameter.optimize_attr["learning_rate"]
        with paddle.no_grad():
            paddle.assign(parameter - rate * gradient, parameter)

    optimizer._append_optimize_op = append


def whole_weights(model: CausalLM, updater: Updater) -> dict[str, paddle.Tensor]:
    """This process's parameters by path."""
    return {name: updater.whole(parameter) for name, parameter in model.named_parameters()}
