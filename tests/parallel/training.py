"""What each process of a layout does: one training after the other, through the tasks' real functions."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from safetensors.numpy import load_file

from tests.parallel.cases import Combination
from tests.training import Recorder
from trainer.checkpoint.pieces import Piece, held_pieces
from trainer.config import read_config
from trainer.events import Event
from trainer.loop import final, layouts, setup, task
from trainer.ops.host import configure_cpu
from trainer.parallel import update_choice
from trainer.parallel.layout import Layout
from trainer.parallel.topology import Topology
from trainer.run import run_task

SMALL_SEGMENT = 100
"""Stage 3 slices parameters with more numbers than this; by default it would slice none of these."""

#: What measures time, and so differs.
TIMES = ("_runtime", "_per_second")


@dataclass(frozen=True)
class Part:
    """A rectangle of a weight, as both lie on disk."""

    name: str
    shape: tuple[int, ...]
    region: tuple[slice, ...]
    values: np.ndarray


@dataclass
class Outcome:
    """What came of a training in one process.

    Attributes:
        losses, norms: of every step.
        evaluations: the metrics of every evaluation.
        weights: what is here of all weights that were trained, after training; in the main process also those
            of the final model on disk.
        seconds: it took.
    """

    losses: list[float]
    norms: list[float]
    evaluations: list[dict[str, float]]
    weights: list[Part]
    seconds: float


@dataclass(frozen=True)
class Job:
    """A combination, its arguments, and where each process leaves its outcome."""

    combination: Combination
    arguments: dict[str, Any]
    results: Path

    def result(self, rank: int) -> Path:
        return self.results / str(rank)


def train_all(jobs: Sequence[Job]) -> None:
    """Runs in every process. All jobs have the same layout, which is joined once."""
    configure_cpu()
    places: list[Layout] = []
    ended: list[setup.Run] = []

    def join(config: Any) -> Layout:
        if not places:
            places.append(layouts.join(config))
        assert Topology.of(config, places[0].topology.world) == places[0].topology
        places[0].seed_step(config.seed, 0)
        return places[0]

    def finish(run: setup.Run, *more: Any) -> dict[str, Any]:
        ended.append(run)
        return final.finish(run, *more)

    task.join, task.finish = join, finish
    setup.make_updater = partial(update_choice.make_updater, segment_size=SMALL_SEGMENT)
    adamw = update_choice.build_optimizer
    for job in jobs:
        update_choice.build_optimizer = plain_optimizer if job.combination.plain else adamw
        began = time.monotonic()
        recorder = told(job)
        leave(job, places[0].rank, outcome(recorder, ended.pop(), time.monotonic() - began))


def told(job: Job) -> Recorder:
    """What one training tells."""
    task_name = job.combination.method.task
    reading = read_config(task_name, job.arguments)
    assert reading.config is not None, reading.problems
    recorder = Recorder()
    run_task(task_name, reading.config, recorder.writer, lambda: False)
    return recorder


def outcome(recorder: Recorder, run: setup.Run, seconds: float) -> Outcome:
    """What came of it."""
    steps = recorder.of("metric")
    return Outcome(
        losses=[step["loss"] for step in steps],
        norms=[step["grad_norm"] for step in steps],
        evaluations=[measured(event) for event in recorder.of("eval")],
        weights=[part_of(piece) for piece in held_pieces(run.update.weights())] + list(saved_parts(run)),
        seconds=seconds,
    )


def part_of(piece: Piece) -> Part:
    """A copy of a piece."""
    values = piece.values().numpy()
    values = values.T if piece.transposed else values
    region = tuple(slice(start, stop) for start, stop in piece.region)
    return Part(piece.name, piece.header.shape, region, np.array(values))


def saved_parts(run: setup.Run) -> Iterator[Part]:
    """The weights of the final model, which all processes have written."""
    if run.layout.is_main:
        for file in run.output_dir.glob("*.safetensors"):
            for name, values in load_file(file).items():
                yield Part(name, values.shape, tuple(map(slice, values.shape)), values)


def leave(job: Job, rank: int, outcome: Outcome) -> None:
    """Write an outcome to its file, whole or not at all."""
    file = job.result(rank)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    unfinished.write_bytes(pickle.dumps(outcome))
    unfinished.rename(file)


def measured(event: Event) -> dict[str, float]:
    """The metrics of an evaluation."""
    return {
        name: value for name, value in event.items() if name.startswith("eval_") and not name.endswith(TIMES)
    }


def plain_optimizer(
    parameters: Sequence[paddle.Tensor], config: Any, *, clip: Any = None, **of_adamw: Any
) -> Any:
    """Gradient descent in place of AdamW."""
    trainable = [parameter for parameter in parameters if not parameter.stop_gradient]
    return paddle.optimizer.SGD(learning_rate=0.0, parameters=trainable, grad_clip=clip)
