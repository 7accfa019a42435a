"""Config schemas of every task, their reading and the presets. Importing this never imports Paddle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from trainer.config.problems import ConfigError, DataError, Problem, RegattaError, TrainingError
from trainer.config.tasks import AVAILABLE_TASKS, TASKS, task_problem


class TaskConfig(BaseModel):
    """What every task's config can do."""

    def resolved(self) -> dict[str, Any]: ...

    def world_size(self) -> int: ...


class FinetuneConfig(TaskConfig):
    """Arguments of task finetune."""


@dataclass(frozen=True)
class Reading:
    task: str
    given: dict[str, Any]
    config: TaskConfig | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


@dataclass(frozen=True)
class Preset:
    task: str
    config: dict[str, Any]


def read_config(task: str, raw: Mapping[str, object]) -> Reading: ...


def load_config(task: str, path: Path, overrides: Sequence[str] = ()) -> Reading: ...


def json_schema(task: str) -> dict[str, Any]: ...


def preset_names() -> list[tuple[str, str]]: ...


def preset(family: str, name: str) -> Preset: ...


__all__ = [
    "AVAILABLE_TASKS",
    "TASKS",
    "ConfigError",
    "DataError",
    "FinetuneConfig",
    "Preset",
    "Problem",
    "Reading",
    "RegattaError",
    "TaskConfig",
    "TrainingError",
    "json_schema",
    "load_config",
    "preset",
    "preset_names",
    "read_config",
    "task_problem",
]
