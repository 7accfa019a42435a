"""The config classes: one per task, composed of the groups of arguments in `trainer.config.fields`."""

import math
from typing import Any, ClassVar

from pydantic import model_validator

from trainer.config.fields.base import FieldGroup
from trainer.config.fields.checkpoint import CheckpointFields
from trainer.config.fields.data import DataFields, GenerationFields, PreferenceDataFields, SftDataFields
from trainer.config.fields.evaluation import EvaluationFields
from trainer.config.fields.export import ExportFields
from trainer.config.fields.kernels import KernelFields
from trainer.config.fields.logging import LoggingFields
from trainer.config.fields.loop import LoopFields
from trainer.config.fields.merge import MergeFields
from trainer.config.fields.model import FinetuneModelFields, ModelFields
from trainer.config.fields.optimizer import DecayFields, OptimizerFields
from trainer.config.fields.parallel import ParallelFields
from trainer.config.fields.peft import AdapterFields, LoraFields, PreferenceLoraFields, ReftFields
from trainer.config.fields.precision import PrecisionFields
from trainer.config.fields.preference import DpoFields, KtoFields, ReferenceFields
from trainer.config.fields.quantization import QuantizationFields
from trainer.config.standing import setting, standing_of
from trainer.config.values import Flag, Real

DEGREES = ("tensor_parallel_degree", "pipeline_parallel_degree")


def description_of(group: type[FieldGroup], name: str) -> str:
    """The description of an argument whose default alone differs between tasks."""
    return group.model_fields[name].description or ""


class TaskConfig(FieldGroup):
    """What the config of every task can do. Made by `trainer.config.read_config`; frozen."""

    task: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _null_means_not_set(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data

    def resolved(self) -> dict[str, Any]:
        """Every argument with its value, ready for JSON; reading it gives an equal config."""
        return self.model_dump(mode="json")

    def parallel_degrees(self) -> dict[str, int]:
        """The degrees above 1 by argument name; the number of devices is a multiple of their product."""
        values = self.model_dump(include={*DEGREES, "sharding", "sharding_parallel_degree"})
        counted = [*DEGREES, "sharding_parallel_degree"] if values.get("sharding") else list(DEGREES)
        return {name: values[name] for name in counted if values.get(name, 1) > 1}

    def world_size(self) -> int:
        """The fewest devices that the parallel degrees need; any multiple of it will do as well."""
        return math.prod(self.parallel_degrees().values())


class TrainingConfig(
    LoggingFields,
    KernelFields,
    ParallelFields,
    CheckpointFields,
    PrecisionFields,
    EvaluationFields,
    OptimizerFields,
    LoopFields,
    DataFields,
    LoraFields,
    ModelFields,
    TaskConfig,
):
    """Arguments that every training task has (PaddleNLP's TrainingArguments, mostly)."""


class SftConfig(
    AdapterFields, GenerationFields, DecayFields, SftDataFields, FinetuneModelFields, TrainingConfig
):
    """Arguments of tasks with records of source and target."""

    learning_rate: Real = setting(2e-5, "Peak learning rate.", ge=0)


class FinetuneConfig(ReftFields, SftConfig):
    """Supervised fine-tuning on records of source and target."""

    task = "finetune"


class QuantizeConfig(QuantizationFields, SftConfig):
    """Post-training quantization, calibrated on records of source and target."""

    task = "quantize"


class PreferenceConfig(ReferenceFields, PreferenceLoraFields, PreferenceDataFields, TrainingConfig):
    """Arguments that dpo and kto share."""

    unified_checkpoint: Flag = setting(True, description_of(CheckpointFields, "unified_checkpoint"))
    tensor_parallel_output: Flag | None = setting(
        True,
        description_of(ParallelFields, "tensor_parallel_output"),
        standing_of(ParallelFields.model_fields["tensor_parallel_output"]),
    )


class DpoConfig(DpoFields, PreferenceConfig):
    """Preference training on pairs of a chosen and a rejected response."""

    task = "dpo"


class KtoConfig(KtoFields, PreferenceConfig):
    """Preference training on responses judged one by one."""

    task = "kto"


#: A config that a training run follows.
RunConfig = FinetuneConfig | DpoConfig | KtoConfig

#: A config of a task that reads records.
RecordsConfig = RunConfig | QuantizeConfig


class EvaluateConfig(FinetuneConfig):
    """Evaluation of a model or an adapter on dev data. The argument file is that of finetune."""

    task = "evaluate"


class MergeConfig(MergeFields, TaskConfig):
    """A LoRA adapter and its base model become one model."""

    task = "merge"


class ExportConfig(ExportFields, TaskConfig):
    """A model becomes a static graph for Paddle's inference library."""

    task = "export"


CONFIGS: dict[str, type[TaskConfig]] = {
    config.task: config
    for config in (
        FinetuneConfig,
        DpoConfig,
        KtoConfig,
        QuantizeConfig,
        MergeConfig,
        ExportConfig,
        EvaluateConfig,
    )
}
