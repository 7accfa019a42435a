"""The argument files that ship: `presets/<family>/<name>.json`."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("presets")

#: The task of a file, by the first word of its name.
TASK_OF = {
    "sft": "finetune",
    "lora": "finetune",
    "pt": "finetune",
    "ptq": "quantize",
    "gptq": "quantize",
    "dpo": "dpo",
    "kto": "kto",
}


@dataclass(frozen=True)
class Preset:
    """An argument file and the task that runs it."""

    task: str
    config: dict[str, Any]


@cache
def _names() -> tuple[tuple[str, str], ...]:
    return tuple(sorted((path.parent.name, path.stem) for path in FOLDER.glob("*/*.json")))


def preset_names() -> list[tuple[str, str]]:
    """(family, name) of every preset, sorted."""
    return list(_names())


def preset(family: str, name: str) -> Preset:
    """The preset of this family and name; PaddleNLP's file names (`sft_argument`) are understood too.

    Raises:
        KeyError: there is none.
    """
    name = name.removesuffix(".json").removesuffix("_argument")
    if (family, name) not in _names():
        raise KeyError(f"{family}/{name}")
    config = json.loads((FOLDER / family / f"{name}.json").read_text(encoding="utf-8"))
    return Preset(TASK_OF[name.split("_")[0]], config)
