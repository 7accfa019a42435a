"""A run and everything it holds, brought to its first step or to that of a checkpoint."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.checkpoint.find import Checkpoint
from trainer.checkpoint.optimizer_state import has_optimizer, load_optimizer
from trainer.checkpoint.ranks import Ranks
from trainer.checkpoint.saver import Saver
from trainer.config import FinetuneConfig
from trainer.config.preflight.steps import check_steps
from trainer.config.problems import ConfigError, Problem
from trainer.config.schema import RunConfig, SftConfig
from trainer.data.batches import Collator
from trainer.data.rows import TrainingRows
from trainer.events import EventWriter
from trainer.loop.engine import Engine
from trainer.loop.evaluation import Evaluation
from trainer.loop.layouts import begin_training, tied_parameters
from trainer.loop.neftune import EmbeddingNoise
from trainer.loop.objective import Objective
from trainer.loop.plan import Plan, plan_steps
from trainer.loop.precision import FullPrecision
from trainer.loop.report import Reporter
from trainer.loop.resume import changed_settings, load_state, run_settings
from trainer.loop.schedule import Schedule, warmup_steps
from trainer.loop.state import TrainState
from trainer.models.base import CausalLM
from trainer.models.packed import PackedLayer
from trainer.models.weights import WeightMap
from trainer.parallel.communication import gather_objects
from trainer.parallel.layout import Layout
from trainer.parallel.update import Updater
from trainer.parallel.update_choice import make_updater
from trainer.tokenizers import Tokenizer

StopQuestion = Callable[[], bool]
Collate = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Material:
    """What a task trains on.

    Attributes:
        tokenizer: saved beside the weights.
        train: None when nothing is trained.
        collate: makes a batch of rows of `train`.
    """

    tokenizer: Tokenizer
    train: TrainingRows | None
    collate: Collate


@dataclass
class Run:
    """Everything that the training loop works on.

    Attributes:
        config: the arguments.
        output_dir: absolute; checkpoints and the final model go there.
        events: where the run reports.
        layout: the place of this process.
        train: the rows to train on.
        dev: what is evaluated; None when nothing is.
        collate: makes a batch of rows.
        objective: what a step minimises.
        tokenizer: saved beside the weights.
        engine, update, precision: run the model and change it, and how exactly they compute.
        plan, schedule: how many steps, and their learning rates.
        state: where the run stands.
        report: tells log and events.
        saver: writes checkpoints and the final model.
        saved_step: step of the newest checkpoint in output_dir that this run made or began with; -1: none.
    """

    config: RunConfig
    output_dir: Path
    events: EventWriter
    layout: Layout
    train: TrainingRows
    dev: Evaluation | None
    collate: Collate
    objective: Objective
    tokenizer: Tokenizer
    engine: Engine
    update: Updater
    precision: FullPrecision
    plan: Plan
    schedule: Schedule
    state: TrainState
    report: Reporter
    saver: Saver
    saved_step: int

    @property
    def model(self) -> CausalLM:
        """What is trained."""
        return self.engine.model


def prepare_run(
    config: RunConfig,
    events: EventWriter,
    layout: Layout,
    material: Material,
    objective: Objective,
    dev: Evaluation | None,
    engine: Engine,
    mixing: FullPrecision,
    start: Checkpoint | None,
) -> Run:
    """A run that is ready for its next step.

    Args:
        config, events: the arguments (with absolute paths), and where to report.
        layout: the place of this process.
        material: the data; there is something to train on.
        objective: what a step minimises.
        dev: what is evaluated; None when nothing is.
        engine: its model has the weights to begin with, which are those of `start` when it is given.
        mixing: the precision that the engine computes in.
        start: the checkpoint to go on from.

    Raises:
        ConfigError: dataloader_drop_last leaves no batch, or `start` was saved without its optimizer.
        DataError: the checkpoint's state does not belong to this model.
    """
    train = material.train
    if train is None:
        raise ValueError("there is nothing to train on")
    if train.count is not None:
        problems, _, _ = check_steps(config, train.count, layout.topology.data_ways)
        if problems:
            raise ConfigError(problems)
    model = engine.model
    update = make_updater(model, config, mixing, layout, tied=tied_parameters(engine))
    begin_training(engine, update)
    settings = run_settings(config, train.fingerprint(), layout.topology.data_ways)
    state = TrainState()
    if start is not None:
        state = load_state(start)
        if warning := changed_settings(state.settings, settings):
            events.warn(warning)
        if config.ignore_load_lr_and_optim:
            state.schedule_step = 0
        else:
            _check_optimizer_is_there(start)
            load_optimizer(update, start.path)
            mixing.load_state(state.loss_scaling)
    state.settings = settings
    if config.resume_from_checkpoint:
        state.resumed_from = str(Path(config.resume_from_checkpoint).resolve())
    plan = plan_steps(config, train.count, state, layout.topology.data_ways)
    if config.ignore_data_skip:
        state.consumed = 0
    if isinstance(config, FinetuneConfig) and config.neftune and model.placement.has(0):
        EmbeddingNoise(model, config.neftune_noise_alpha)
    model.train()
    output_dir = Path(config.output_dir)
    return Run(
        config=config,
        output_dir=output_dir,
        events=events,
        layout=layout,
        train=train,
        dev=dev,
        collate=material.collate,
        objective=objective,
        tokenizer=material.tokenizer,
        engine=engine,
        update=update,
        precision=mixing,
        plan=plan,
        schedule=_schedule(config, plan),
        state=state,
        report=Reporter(events, plan, state),
        saver=Saver(output_dir, Ranks.of(layout), asynchronous=saves_beside_training(config)),
        saved_step=start.step if start is not None and start.path.parent == output_dir else -1,
    )


def pad_token(tokenizer: Tokenizer) -> int:
    """What padding is filled with: the pad id, or the EOS where there is none."""
    pad_ids = [token for token in (tokenizer.pad_id, tokenizer.eos_id) if token is not None]
    return pad_ids[0] if pad_ids else 0


def build_collator(config: SftConfig, tokenizer: Tokenizer) -> Collator:
    """The collator for a tokenizer."""
    return Collator(
        pad_id=pad_token(tokenizer),
        side=tokenizer.padding_side,
        length=config.max_length if config.pad_to_max_length or config.zero_padding else None,
        multiple_of=config.pad_to_multiple_of,
    )


def count_parameters(layout: Layout, model: CausalLM) -> tuple[int, int]:
    """Numbers in all weights of a model, those of an adapter and of quantized layers included, and in those
    that are trained.
    """
    trained = _sizes(model.trained_weights())
    packed = {
        path: layer.weight_count for path, layer in model.named_sublayers() if isinstance(layer, PackedLayer)
    }
    parts = gather_objects(layout, (_sizes(model.parameter_names()) | packed | trained, trained))
    whole, trainable = (dict(ChainMap(*sides)) for sides in zip(*parts, strict=True))
    return sum(whole.values()), sum(trainable.values())


def _sizes(weights: WeightMap) -> dict[str, int]:
    return {name: math.prod(weight.disk_shape) for name, weight in weights.items()}


def _decay_steps(config: RunConfig) -> int:
    return config.decay_steps if isinstance(config, FinetuneConfig) else 0


def saves_beside_training(config: RunConfig) -> bool:
    """Whether training goes on while a checkpoint is written; in one of two ways to say so."""
    return bool(config.use_async_save) or "async_save" in (config.unified_checkpoint_config or "").split()


def _check_optimizer_is_there(start: Checkpoint) -> None:
    if has_optimizer(start.path):
        return
    raise ConfigError(
        Problem(
            ("ignore_load_lr_and_optim",),
            f"{start.path} was saved without optimizer state (ignore_save_lr_and_optim)",
            "Set ignore_load_lr_and_optim to true to go on with a fresh optimizer.",
        )
    )


def _schedule(config: RunConfig, plan: Plan) -> Schedule:
    return Schedule(
        kind=config.lr_scheduler_type,
        learning_rate=config.learning_rate,
        warmup_steps=warmup_steps(config.warmup_steps, config.warmup_ratio, plan.total_steps),
        total_steps=_decay_steps(config) or plan.total_steps,
        num_cycles=config.num_cycles,
        lr_end=config.lr_end,
        power=config.power,
    )
