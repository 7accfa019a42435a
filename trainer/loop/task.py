"""A training task from its arguments to its result; what differs between tasks is passed in."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from trainer.checkpoint.find import Checkpoint
from trainer.config.problems import ConfigError, Problem
from trainer.config.schema import RunConfig
from trainer.events import EventWriter
from trainer.loop.adapters import starting_model
from trainer.loop.device import choose_device
from trainer.loop.engine import Engine
from trainer.loop.evaluation import Evaluation
from trainer.loop.final import final_evaluation, finish, finish_stopped, take_best_model
from trainer.loop.guard import AgreedStop
from trainer.loop.layouts import from_host, from_main, join, make_engine, placement
from trainer.loop.objective import Objective
from trainer.loop.precision import Precision, choose_precision, make_precision
from trainer.loop.report import log_metrics
from trainer.loop.results import write_results
from trainer.loop.resume import starting_checkpoint
from trainer.loop.setup import Material, StopQuestion, count_parameters, prepare_run
from trainer.loop.train import train
from trainer.models.recompute import recompute_activations
from trainer.parallel.layout import Layout

log = logging.getLogger(__name__)

#: Reads the data of a task; called before the model is loaded, so that bad data costs no time.
ReadMaterial = Callable[[], Material]

#: What the task makes of the model before it trains, given the checkpoint it goes on from: what a step
#: minimises, and what is evaluated (None: nothing).
Prepare = Callable[
    [Engine, Layout, Material, Precision, Checkpoint | None], tuple[Objective, Evaluation | None]
]


def run_training(
    config: RunConfig,
    events: EventWriter,
    should_stop: StopQuestion,
    read: ReadMaterial,
    prepare: Prepare,
) -> dict[str, Any]:
    """Run the task from its arguments to its result.

    Args:
        config: its paths are absolute.
        events: where progress is told.
        should_stop: asked between steps; True means: save a checkpoint and end.
        read, prepare: the task's own part.

    Returns:
        The fields of the ``result`` event: path, metrics, stopped. Over several processes, each of which
        calls this, they are the same in all.

    Raises:
        ConfigError, DataError: the arguments, the model or the data cannot be used.
        TrainingError: training could not go on.
    """
    Path(config.output_dir).mkdir(parents=True, exist_ok=True)
    device = choose_device(config)
    layout = join(config)
    should_stop = AgreedStop(should_stop, layout)
    precision, warning = choose_precision(config, device)
    if warning:
        events.warn(warning)
    start = None
    if config.do_train:
        start = _agreed_start(layout, config, events)
    material = read()
    model = starting_model(config, start, partial(placement, layout))
    if config.recompute:
        recompute_activations(model, config.recompute_granularity)
    all_parameters, trainable = count_parameters(layout, model)
    share = f"; {trainable} of them are trained ({100 * trainable / all_parameters:.3g} %)"
    log.info(
        "%s, %.4g million parameters, on %s%s",
        *(model.config.model_type, all_parameters / 1e6, device, share if material.train is not None else ""),
    )
    mixing = make_precision(precision, config)
    engine = make_engine(model, layout, mixing.autocast)
    objective, dev = prepare(engine, layout, material, precision, start)
    if material.train is None:
        return _evaluate_only(config, events, dev, engine, layout, should_stop)

    run = prepare_run(config, events, layout, material, objective, dev, engine, mixing, start)
    began = time.monotonic()
    stopped = train(run, should_stop)
    seconds = time.monotonic() - began
    if stopped:
        return finish_stopped(run, seconds)
    step = take_best_model(run)
    return finish(run, seconds, final_evaluation(run, step, should_stop))


def _agreed_start(layout: Layout, config: RunConfig, events: EventWriter) -> Checkpoint | None:
    """The checkpoint to go on from, as this process sees it.

    Raises:
        ConfigError: hosts that share no folder have different ones.
    """
    found = from_host(layout, lambda: starting_checkpoint(config, events))
    steps = [None if start is None else start.step for start in found]
    if any(step != steps[0] for step in steps):
        told = ", ".join("none" if step is None else f"checkpoint-{step}" for step in steps)
        msg = f"the hosts would not go on from the same checkpoint: they have {told}"
        raise ConfigError(Problem(("output_dir",), msg, "Copy the newest one to all of them."))
    return found[layout.host]


def absolute_output(config: RunConfig) -> Any:
    """The config with an absolute output_dir."""
    return config.model_copy(update={"output_dir": str(Path(config.output_dir).resolve())})


def _evaluate_only(
    config: RunConfig,
    events: EventWriter,
    dev: Evaluation | None,
    engine: Engine,
    layout: Layout,
    should_stop: StopQuestion,
) -> dict[str, Any]:
    """do_eval without do_train: measure the model and write nothing but the result files."""
    output_dir = Path(config.output_dir)
    result: dict[str, Any] = {"path": str(output_dir), "metrics": {}, "stopped": False}
    if dev is None:
        return result
    metrics = dev.measure(engine, should_stop)
    if metrics is None:
        return result | {"stopped": True}
    log_metrics(events, {"step": 0, "epoch": 0.0, **metrics})
    results = {"eval": metrics}
    return result | {"metrics": from_main(layout, lambda: write_results(output_dir, results))}
