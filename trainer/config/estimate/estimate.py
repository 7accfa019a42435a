"""The estimate of a job."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from trainer.config.estimate.architecture import Architecture
from trainer.config.estimate.checkpoints import Checkpoints, checkpoints
from trainer.config.estimate.memory import Memory, run_memory
from trainer.config.estimate.other_tasks import export_memory, merge_memory, quantize_memory
from trainer.config.estimate.parameters import adapter_parameters
from trainer.config.estimate.tokens import Counted, SplitTokens, is_packed, longest_pass
from trainer.config.known_models import KNOWN_MODELS
from trainer.config.preflight.folder import FolderError, json_object
from trainer.config.preflight.hub import HubName
from trainer.config.preflight.places import Checked
from trainer.config.preflight.steps import check_steps, steps_per_epoch
from trainer.config.preflight.unchanged import while_unchanged
from trainer.config.quantized_models import QUANTIZATION
from trainer.config.schema import (
    ExportConfig,
    MergeConfig,
    QuantizeConfig,
    RunConfig,
    TaskConfig,
)
from trainer.config.topology import Topology


@dataclass(frozen=True)
class Estimate:
    """What a job will take. None: it cannot be known yet, and `notes` says why.

    Attributes:
        parameters: of the model, its adapter among them.
        trainable_parameters: of them that are trained.
        adapter_parameters: of them that are the adapter's.
        memory: of the fullest device.
        data: tokens of each split that is used.
        optimizer_steps: of the whole run.
        tokens_per_step: real tokens of a step, on average.
        run_tokens: real tokens of the whole run.
        checkpoints: what is written.
        notes: what was assumed, and why something is not known.
    """

    parameters: int | None = None
    trainable_parameters: int | None = None
    adapter_parameters: int | None = None
    memory: Memory | None = None
    data: Counted | None = None
    optimizer_steps: int | None = None
    tokens_per_step: int | None = None
    run_tokens: int | None = None
    checkpoints: Checkpoints | None = None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; sums stand beside their parts."""
        found: dict[str, Any] = dict(vars(self))
        if self.memory is not None:
            found["memory"] = {
                "bytes": self.memory.total,
                "moment": self.memory.moment,
                "stage": self.memory.stage,
                "parts": dict(vars(self.memory.parts)),
            }
        if self.data is not None:
            found["data"] = {name: dict(vars(split)) for name, split in self.data.items()}
        if self.checkpoints is not None:
            found["checkpoints"] = {"bytes": self.checkpoints.bytes, **vars(self.checkpoints)}
        found["notes"] = list(self.notes)
        return found


def estimate_job(
    checked: Checked,
    topology: Topology,
    device: str,
    counted: Counted | None = None,
    why_not_counted: str | None = None,
) -> Estimate:
    """The estimate of a job that `check_job` has found nothing wrong with.

    Args:
        topology: the degrees on the devices that it gets.
        device: "cpu" or "gpu".
        counted: the tokens of its data; None: they were not counted.
        why_not_counted: the reason, for a note.
    """
    config = checked.config
    notes = [why_not_counted] if why_not_counted else []
    train = (counted or {}).get("train")
    course = _course(checked, topology, train)
    per_step, in_all = _tokens(course, train)
    found = Estimate(data=counted, optimizer_steps=course.steps, tokens_per_step=per_step, run_tokens=in_all)
    content = model_content(config)
    model = None if content is None else Architecture.of(content, _options(config))
    if content is None or model is None:
        notes.append("parameters and memory: the sizes of the model are not known before it is there")
        return replace(found, notes=tuple(notes))
    adapter = adapter_parameters(model, config)
    training = isinstance(config, RunConfig) and config.do_train
    return replace(
        found,
        parameters=model.parameters + adapter,
        trainable_parameters=(adapter or model.parameters) if training else 0,
        adapter_parameters=adapter,
        memory=memory_of(model, config, topology, device, counted),
        checkpoints=checkpoints(model, config, device, course.steps, course.epochs)
        if isinstance(config, RunConfig) and training
        else None,
        notes=(*notes, *_assumptions(config, content, counted)),
    )


def _assumptions(config: TaskConfig, content: Mapping[str, Any], counted: Counted | None) -> Iterator[str]:
    if isinstance(config, QuantizeConfig | MergeConfig | ExportConfig):
        yield f"memory: a rough number for task {config.task}"
    elif counted is None:
        yield "memory: for rows as long as the arguments allow"
    if content.get(QUANTIZATION) is not None:
        yield "memory: as if the weights were not quantized"
    for name, split in (counted or {}).items():
        if split.sampled is not None:
            yield f"data: {split.sampled} of {split.records} records of {name} were tokenized"


def memory_of(
    model: Architecture, config: TaskConfig, topology: Topology, device: str, counted: Counted | None
) -> Memory | None:
    """The memory of the fullest device."""
    if isinstance(config, MergeConfig):
        return merge_memory(model)
    if isinstance(config, ExportConfig):
        return export_memory(model)
    split: Mapping[str, SplitTokens] = counted or {}
    if isinstance(config, QuantizeConfig | RunConfig):
        first = split.get("quant") or split.get("train")
        work = longest_pass(config, config.per_device_train_batch_size, first)
        dev = longest_pass(config, config.per_device_eval_batch_size, split.get("dev"))
        if isinstance(config, QuantizeConfig):
            return quantize_memory(model, config, device, work, dev)
        return run_memory(model, config, topology, device, work, dev)
    return None


def model_content(config: TaskConfig) -> dict[str, Any] | None:
    """The config.json of the model that a job names; None when it is not here and not known by its name."""
    given = getattr(config, "model_name_or_path", None)
    if given is None:
        return None
    name = HubName.parse(given)
    folder = Path(given)
    if folder.is_dir():
        try:
            file = folder / "config.json"
            return while_unchanged("config.json", [file], partial(json_object, file))
        except (FolderError, OSError):
            return None
    known = KNOWN_MODELS.get(name.repository) if name else None
    return {"model_type": known.model_type, **known.sizes} if known else None


def architecture_of(config: TaskConfig) -> Architecture | None:
    """The model that a job names, with what its arguments change of it."""
    content = model_content(config)
    return None if content is None else Architecture.of(content, _options(config))


def _options(config: TaskConfig) -> dict[str, Any]:
    names = ("fuse_attention_qkv", "fuse_attention_ffn")
    return {name: value for name in names if (value := getattr(config, name, None)) is not None}


@dataclass(frozen=True)
class _Course:
    """How long a run is.

    Attributes:
        steps: optimizer steps; None: unknown.
        per_epoch: of them in an epoch; None: unknown.
    """

    steps: int | None = None
    per_epoch: int | None = None

    @property
    def epochs(self) -> int | None:
        """Epochs that it ends or leaves unfinished."""
        if self.steps is None or self.per_epoch is None:
            return None
        return math.ceil(self.steps / self.per_epoch)


def _course(checked: Checked, topology: Topology, train: SplitTokens | None) -> _Course:
    config = checked.config
    if not isinstance(config, RunConfig) or not config.do_train:
        return _Course()
    rows = train.rows if train else None
    if rows is None and not is_packed(config) and not config.lazy:
        rows = checked.statistics.get("train", {}).get("examples")
    if rows is None:
        return _Course(config.max_steps if config.max_steps > 0 else None)
    problems, _, total = check_steps(config, rows, topology.data_ways)
    if problems:
        return _Course()
    return _Course(total, steps_per_epoch(config, rows, topology.data_ways))


def _tokens(course: _Course, train: SplitTokens | None) -> tuple[int | None, int | None]:
    """Real tokens of an average step, and of the whole run."""
    if train is None or course.steps is None or course.per_epoch is None:
        return None, None
    return round(train.tokens / course.per_epoch), round(train.tokens * course.steps / course.per_epoch)
