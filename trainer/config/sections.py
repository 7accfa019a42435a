"""What the arguments are about: the order in which documents and forms show them."""

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

SECTIONS: tuple[tuple[str, tuple[type[FieldGroup], ...]], ...] = (
    ("Model", (ModelFields, FinetuneModelFields)),
    ("Data", (SftDataFields, PreferenceDataFields, DataFields, GenerationFields)),
    ("Training loop", (LoopFields,)),
    ("Optimizer and schedule", (OptimizerFields, DecayFields)),
    ("Evaluation and saving", (EvaluationFields,)),
    ("Logging", (LoggingFields,)),
    ("Precision and device", (PrecisionFields,)),
    ("Parallelism", (ParallelFields,)),
    ("Checkpoints", (CheckpointFields,)),
    ("Kernels and recompute", (KernelFields,)),
    ("Parameter-efficient tuning", (LoraFields, PreferenceLoraFields, AdapterFields, ReftFields)),
    ("Preference training", (DpoFields, KtoFields, ReferenceFields)),
    ("Quantization", (QuantizationFields,)),
    ("Merging and exporting", (MergeFields, ExportFields)),
)
"""Titles, and the groups of arguments below each."""

SECTION_OF = {name: title for title, groups in SECTIONS for group in groups for name in group.__annotations__}
"""The title that an argument stands under, by its name."""
