"""Task quantize: a model becomes a smaller one, and what that costs is measured."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import load_tokenizer
from trainer.config.data_files import calibration_split
from trainer.config.problems import ConfigError, DataError, Problem
from trainer.config.quantized_models import WHOLE_ROW
from trainer.data.batches import epoch_order
from trainer.data.encoding import build_encoder
from trainer.data.rows import arranged_split
from trainer.loop.data import evaluation_data, read_split
from trainer.loop.device import choose_device
from trainer.loop.engine import SingleEngine, groups
from trainer.loop.evaluation import TokenEvaluation
from trainer.loop.objective import metrics_passes
from trainer.loop.precision import choose_precision
from trainer.loop.quantize_report import Outcome, weight_bytes
from trainer.loop.quantize_settings import (
    Settings,
    begin,
    calibration_batches,
    group_size_of,
    method_name,
    scheme_facts,
    settings_of,
)
from trainer.loop.report import log_metrics
from trainer.loop.results import write_results
from trainer.loop.setup import StopQuestion, build_collator
from trainer.models import linear_layers
from trainer.models.directory import load_model, save_model
from trainer.models.finite import refuse_broken_weights
from trainer.quantization.inputs import is_named
from trainer.tools.merge import MergeStoppedError, merge_adapter

if TYPE_CHECKING:
    from trainer.config.schema import QuantizeConfig
    from trainer.events import EventWriter
    from trainer.models import CausalLM
    from trainer.models.passes import Pass
    from trainer.tokenizers import Tokenizer

log = logging.getLogger(__name__)

#: Where an adapter and its base model are merged, inside output_dir, until the model is loaded.
_MERGED = "merged"
#: While a decoder layer takes longer, its progress is told so often.
_TOLD_EVERY_S = 5.0


def quantize(config: QuantizeConfig, events: EventWriter, should_stop: StopQuestion) -> dict[str, Any]:
    """Run the task; a step of its progress is a decoder layer.

    Returns:
        The fields of the ``result`` event. Stopped, the folder holds no model.

    Raises:
        ConfigError, DataError: the arguments, the model or the data cannot be used.
        TrainingError: the model's numbers are not finite on the data.
    """
    output = Path(config.output_dir).resolve()
    if output == Path(config.model_name_or_path).resolve():
        raise ConfigError(Problem(("output_dir",), f"{output} is the folder of the model", "Choose another."))
    output.mkdir(parents=True, exist_ok=True)
    device = choose_device(config)
    precision, warning = choose_precision(config, device)
    if warning:
        events.warn(warning)
    material = _read(config, events)
    stopped: dict[str, Any] = {"path": str(output), "metrics": {}, "stopped": True}
    try:
        with _source(config, output, should_stop) as folder:
            bytes_before = weight_bytes(folder)
            # Low precision is for devices with little memory; statistics are taken in float32 all the same.
            model = load_model(folder, precision.dtype if precision.level == "O2" else "float32")
            refuse_broken_weights(model, folder)
    except MergeStoppedError:
        return stopped
    log.info("%s on %s, by %s", model.config.model_type, device, method_name(config))

    work = _Work(model, material, events, should_stop)
    settings = _settings(config, model, events)
    outcome = Outcome(method_name(config), scheme_facts(settings.scheme), material.calibration, bytes_before)
    names = _unknown_names(config, model)
    before = work.evaluate(0)
    if before is None or not work.quantize(settings, outcome):
        return stopped
    outcome.tell(events, names)
    after = work.evaluate(len(model.stages()) - 2)
    if after is None:
        return stopped
    outcome.before, outcome.after = before, after

    log.info("writing the quantized model to %s", output)
    save_model(model, output)
    material.tokenizer.save(output)
    bytes_after = weight_bytes(output)
    outcome.write(output, bytes_after)
    results: dict[str, dict[str, Any]] = {"quantize": outcome.metrics(bytes_after)}
    if after:
        results["eval"] = after
    return {"path": str(output), "metrics": write_results(output, results), "stopped": False}


@dataclass(frozen=True)
class _Material:
    """What the task works with besides the model.

    Attributes:
        tokenizer: saved beside the model.
        batches: to calibrate with.
        calibration: what they are, for the report.
        dev: to evaluate on; None: nothing is evaluated.
    """

    tokenizer: Tokenizer
    batches: list[Pass]
    calibration: dict[str, object]
    dev: TokenEvaluation | None


class _Work:
    """A model on its way to a quantized one."""

    def __init__(
        self, model: CausalLM, material: _Material, events: EventWriter, should_stop: StopQuestion
    ) -> None:
        self._model, self._material = model, material
        self._events, self._should_stop = events, should_stop

    def evaluate(self, step: int) -> dict[str, float] | None:
        """Metrics of the model as it is; empty without dev data, None when it was stopped."""
        if self._material.dev is None:
            return {}
        metrics = self._material.dev.measure(SingleEngine(self._model), self._should_stop)
        if metrics is not None:
            log_metrics(self._events, {"step": step, "epoch": 0.0, **metrics})
        return metrics

    def quantize(self, settings: Settings, outcome: Outcome) -> bool:
        """Quantize layer by layer; False when it was stopped."""
        began = time.monotonic()
        watch = _Watch(self._events, self._should_stop, len(self._model.stages()) - 2)
        try:
            watch.pulse(0.0)
            for progress in begin(self._model, self._material.batches, settings, outcome.layers, watch.pulse):
                watch.layer_done(progress.done)
        except _StoppedError:
            return False
        outcome.seconds = time.monotonic() - began
        return True


class _StoppedError(Exception):
    """Somebody asked for an end."""


class _Watch:
    """Tells how far the decoder layers are, and ends the work when that is asked for."""

    def __init__(self, events: EventWriter, should_stop: StopQuestion, total: int) -> None:
        self._events, self._should_stop, self._total = events, should_stop, total
        self._done, self._told = 0, time.monotonic()

    def pulse(self, share: float) -> None:
        """Called all the time, with how much of the present layer is done.

        Raises:
            _StoppedError: the work is to end.
        """
        if self._should_stop():
            raise _StoppedError
        if time.monotonic() - self._told >= _TOLD_EVERY_S:
            self._tell(share)
            log.info("layer %d of %d: %.0f %%", self._done + 1, self._total, 100 * share)

    def layer_done(self, done: int) -> None:
        """One more layer is quantized."""
        self._done = done
        self._tell(0.0)
        log.info("layer %d of %d is quantized", done, self._total)

    def _tell(self, share: float) -> None:
        self._told = time.monotonic()
        epoch = (self._done + share) / self._total
        self._events.write(
            "progress", step=self._done, total_steps=self._total, epoch=epoch, total_epochs=1.0
        )


def _read(config: QuantizeConfig, events: EventWriter) -> _Material:
    """The data, encoded; bad data is found before the model is loaded."""
    tokenizer = load_tokenizer(config.tokenizer_name_or_path or config.model_name_or_path)
    encoder = build_encoder(config, tokenizer)
    collate = build_collator(config, tokenizer)
    name = calibration_split(Path(config.dataset_name_or_path))
    if name == "train":
        msg = "there is no quant.json, so train.json is what quantization is calibrated on"
        events.warn(Problem(("dataset_name_or_path",), msg, "Add a quant.json to choose the records."))
    rows = arranged_split(read_split(name, config, encoder, events), config)
    wanted, size = calibration_batches(config), config.per_device_train_batch_size
    order = epoch_order(len(rows), config.seed if config.data_seed is None else config.data_seed, 0)
    chosen = list(islice(groups((rows[index] for index in order), size), wanted))
    if len(chosen) < wanted:
        msg = f"{name}.json makes {len(chosen)} batches of {size}, fewer than the {wanted} to calibrate with"
        events.warn(Problem(("per_device_train_batch_size",), msg, "Add records, or lower the steps."))
    batches: list[Pass] = [one for part in chosen for one in metrics_passes([collate(part)])]
    calibration: dict[str, object] = {
        "split": name,
        "batches": len(batches),
        "rows": sum(map(len, chosen)),
        "tokens": sum(batch.tokens for batch in batches),
    }
    dev = None
    if config.do_eval:
        data = evaluation_data(config, encoder, tokenizer, events)
        dev = TokenEvaluation(data, collate, config.per_device_eval_batch_size)
    return _Material(tokenizer, batches, calibration, dev)


@contextmanager
def _source(config: QuantizeConfig, output: Path, should_stop: StopQuestion) -> Iterator[Path]:
    """The folder of the model to quantize; with `lora_path`, of the merged one, inside only.

    Raises:
        MergeStoppedError: `should_stop` said so.
    """
    if not config.lora_path:
        yield Path(config.model_name_or_path)
        return
    folder = output / _MERGED
    try:
        log.info("merging the adapter %s", config.lora_path)
        merge_adapter(Path(config.lora_path), folder, config.model_name_or_path, should_stop=should_stop)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settings(config: QuantizeConfig, model: CausalLM, events: EventWriter) -> Settings:
    size = group_size_of(model, config.skip_list_names)
    settings = settings_of(config, size)
    if settings.scheme.group_size not in (WHOLE_ROW, settings_of(config, 128).scheme.group_size):
        msg = f"groups have {size} inputs, since 128 do not divide the inputs of all layers"
        events.warn(Problem(("weight_quant_method",), msg))
    return settings


def _unknown_names(config: QuantizeConfig, model: CausalLM) -> list[str]:
    paths = [layer.path for layer in linear_layers(model)]
    if paths and all(is_named(path, config.skip_list_names) for path in paths):
        msg = "names every linear layer of the model, so nothing is left to quantize"
        raise DataError(Problem(("skip_list_names",), msg, "Name fewer layers."))
    return [name for name in config.skip_list_names if not any(is_named(path, [name]) for path in paths)]
