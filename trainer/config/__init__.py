"""Config schemas of every task, how they are read, and the argument files that ship.

Importing this never imports Paddle: the API and the worker check configs with it.
"""

from typing import Any

from trainer.config.presets import Preset, preset, preset_names
from trainer.config.problems import ConfigError, DataError, Problem, RegattaError, TrainingError
from trainer.config.reading import Reading, load_config, read_config
from trainer.config.schema import CONFIGS, FinetuneConfig, TaskConfig
from trainer.config.sections import SECTION_OF
from trainer.config.tasks import AVAILABLE_TASKS, TASKS, task_problem


def json_schema(task: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a task's config; `x-regatta-support` tells what is honoured,
    `x-regatta-section` what an argument is about.

    Raises:
        KeyError: the task is unknown or has no argument file.
    """
    schema = CONFIGS[task].model_json_schema()
    for name, entry in schema["properties"].items():
        entry["x-regatta-section"] = SECTION_OF[name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "$comment": "For every argument null means not set, and numbers and booleans may be written as text.",
        "x-regatta-task": {"name": task, "available": task in AVAILABLE_TASKS},
    }


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
