"""Tasks dpo and kto: training on responses that were judged, against a reference policy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from trainer import load_tokenizer
from trainer.checkpoint.find import Checkpoint
from trainer.config.data_files import PREFERENCE_FILES
from trainer.config.preference_records import PreferenceRecord
from trainer.config.problems import ConfigError, Problem
from trainer.config.schema import DpoConfig, KtoConfig
from trainer.data.files import read_preference_records
from trainer.data.preference_batches import PreferenceBatch, PreferenceCollator, PreferenceRow
from trainer.data.preference_dataset import encode_preference_split, preference_warnings
from trainer.data.preference_encoding import (
    PreferenceEncoder,
    build_preference_encoder,
    preference_ending_warning,
)
from trainer.data.preference_rows import StreamedPreferences, packed_split
from trainer.data.rows import MemoryRows, TrainingRows
from trainer.events import EventWriter
from trainer.loop.adapters import model_options
from trainer.loop.engine import Engine
from trainer.loop.evaluation import Evaluation
from trainer.loop.layouts import make_engine, placement
from trainer.loop.objective import Objective
from trainer.loop.precision import Precision, make_precision
from trainer.loop.preference import Following, Judged, Pairs
from trainer.loop.preference_evaluation import PreferenceEvaluation
from trainer.loop.reference import REFERENCE_FOLDER, AdapterOff, FrozenModel, Reference
from trainer.loop.reference_cache import known_reference, model_fingerprint
from trainer.loop.setup import Material, StopQuestion, pad_token
from trainer.loop.task import absolute_output, run_training
from trainer.models.directory import load_model
from trainer.parallel.layout import Layout
from trainer.preference.dpo import needs_reference

#: The metrics of kto that need responses judged so: desirable, or not.
NEEDED_CLASSES = {
    True: ("rewards/chosen", "logps/chosen", "rewards/margins"),
    False: ("rewards/rejected", "logps/rejected", "rewards/margins"),
}


def align(config: DpoConfig | KtoConfig, events: EventWriter, should_stop: StopQuestion) -> dict[str, Any]:
    """Run the task; see `trainer.loop.task.run_training`. Paths may be relative to the working directory."""
    config = absolute_output(config)
    task = _Alignment(config, events)
    return run_training(config, events, should_stop, task.read, task.prepare)


class _Alignment:
    """The task's own part of a training."""

    def __init__(self, config: DpoConfig | KtoConfig, events: EventWriter) -> None:
        self._config = config
        self._events = events
        self._rows: dict[str, tuple[PreferenceRow, ...]] = {}
        self._fingerprint = ""

    def read(self) -> Material:
        """The data, encoded and packed."""
        config = self._config
        tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path)
        encoder = build_preference_encoder(config, tokenizer)
        if warning := preference_ending_warning(encoder, tokenizer):
            self._events.warn(warning)
        self._collate = PreferenceCollator(pad_token(tokenizer), tokenizer.padding_side)
        train = self._training_rows(encoder) if config.do_train else None
        if config.do_eval:
            self._rows["dev"] = self._split("dev", encoder)
            self._check_metric()
        return Material(tokenizer, train, self._collate)

    def _check_metric(self) -> None:
        """The metric of the best model may be one of a class of responses that the dev data does not have."""
        metric = (self._config.metric_for_best_model or "").removeprefix("eval_")
        examples = [part for row in self._rows["dev"] for part in row.parts]
        found = {part.desirable for part in examples}
        needed = {side for side, names in NEEDED_CLASSES.items() if metric in names}
        if self._config.task == "kto" and not needed <= found:
            missing = "desirable" if True in needed - found else "undesirable"
            msg = f"got {metric}, and the dev data has no {missing} response"
            raise ConfigError(Problem(("metric_for_best_model",), msg, "Use for example loss."))

    def _training_rows(self, encoder: PreferenceEncoder) -> TrainingRows:
        config = self._config
        if not config.lazy:
            rows: Any = self._split("train", encoder)
            self._rows["train"] = rows
            seed = config.seed if config.data_seed is None else config.data_seed
            return MemoryRows(rows, seed, self._fingerprint)
        path = Path(config.train_dataset_path)
        content = f"{path.name} ({path.stat().st_size} bytes)"
        return StreamedPreferences(
            lambda: self._records("train"), encoder, config.greedy_zero_padding, content
        )

    def _split(self, name: str, encoder: PreferenceEncoder) -> tuple[PreferenceRow, ...]:
        split = encode_preference_split(name, self._records(name), encoder)
        for warning in preference_warnings(split, encoder):
            self._events.warn(warning)
        self._fingerprint += f"{name}: {split.fingerprint()}; "
        return packed_split(split, self._config)

    def _records(self, name: str) -> Iterator[PreferenceRecord]:
        field = PREFERENCE_FILES[name]
        return read_preference_records(Path(getattr(self._config, field)), self._config.task, field)

    def prepare(
        self,
        engine: Engine,
        layout: Layout,
        material: Material,
        precision: Precision,
        start: Checkpoint | None,
    ) -> tuple[Objective, Evaluation | None]:
        """The objective with its reference, and the evaluation of the same objective."""
        config = self._config
        objective: Pairs | Judged
        if isinstance(config, DpoConfig):
            reference = self._reference(engine, layout, precision, start) if needs_reference(config) else None
            objective = Pairs(config, reference)
        else:
            reference = self._reference(engine, layout, precision, start)
            objective = Judged(config, reference)
        dev = None
        if "dev" in self._rows:
            batch_size = config.per_device_eval_batch_size
            dev = PreferenceEvaluation(self._rows["dev"], self._collate, batch_size, objective)
        if isinstance(reference, FrozenModel) and (every := _update_steps(config)):
            return Following(objective, reference, every), dev
        return objective, dev

    def _reference(
        self, engine: Engine, layout: Layout, precision: Precision, start: Checkpoint | None
    ) -> Reference:
        config = self._config
        if config.lora:
            return AdapterOff(engine)
        low = precision.dtype if precision.level == "O2" else "float32"

        def load(path: Path) -> Engine:
            place = partial(placement, layout)
            model = load_model(path, low, model_options(config), place)
            return make_engine(model, layout, make_precision(precision, config).autocast)

        model = Path(config.model_name_or_path)
        if config.precompute_ref_log_probs:
            fresh = start is None and low == "float32"
            return known_reference(
                Path(config.output_dir),
                f"{self._fingerprint}{precision}; {model_fingerprint(model)}",
                self._batches(),
                (lambda: engine) if fresh else (lambda: load(model)),
                layout,
            )
        if start is not None and _update_steps(config):
            followed = start.path / REFERENCE_FOLDER
            if followed.is_dir():
                return FrozenModel(load(followed))
        return FrozenModel(load(model))

    def _batches(self) -> Iterator[PreferenceBatch]:
        size = self._config.per_device_eval_batch_size
        for rows in self._rows.values():
            for at in range(0, len(rows), size):
                yield self._collate(rows[at : at + size])


def _update_steps(config: DpoConfig | KtoConfig) -> int:
    """How often the reference takes the policy's weights; 0: never."""
    return max(0, config.ref_model_update_steps) if isinstance(config, DpoConfig) else 0
