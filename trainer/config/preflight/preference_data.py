"""The data of dpo and kto: two files, every line of which is read once."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from trainer.config.data_files import PREFERENCE_FILES
from trainer.config.data_kinds import SAMPLES
from trainer.config.preference_records import PARSERS, PreferenceRecord, one_judgement, out_of_balance
from trainer.config.preflight.data import Tally
from trainer.config.preflight.paths import Finder
from trainer.config.preflight.unchanged import while_unchanged
from trainer.config.problems import Problem
from trainer.config.schema import KtoConfig, PreferenceConfig
from trainer.config.values import show

FEWEST_TO_COMPARE = 2
"""Records of kto: each is compared with another one's response."""


@dataclass
class PreferenceData:
    """What was found.

    Attributes:
        statistics: for each split that was read `files`, `examples`, `turns` and `bytes`.
        changes: the files that were found, absolute, by the argument that names them.
    """

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)
    changes: dict[str, str] = field(default_factory=dict)


def check_preference_data(finder: Finder, config: PreferenceConfig) -> PreferenceData:
    """Check the file of each split that is used."""
    found = PreferenceData()
    for split, wanted in (("train", config.do_train), ("dev", config.do_eval)):
        if not wanted:
            continue
        name = PREFERENCE_FILES[split]
        given = getattr(config, name)
        if finder.awaits(name, given):
            continue
        path = _file(finder, name, given)
        if isinstance(path, Problem):
            found.problems.append(path)
        else:
            found.changes[name] = given if finder.refers(name, given) else str(path)
            _check_split(found, path, split, config)
    return found


def _file(finder: Finder, name: str, given: str) -> Path | Problem:
    path = finder.path(name, given)
    hint = f"Give a file of JSON lines{finder.place()}."
    if isinstance(path, Problem):
        return replace(path, hint=hint) if path.hint.startswith("Give a folder") else path
    if path.is_dir():
        return Problem((name,), f"{show(given)} is a folder, expected a file", hint)
    return path


def _check_split(found: PreferenceData, path: Path, split: str, config: PreferenceConfig) -> None:
    name, task = PREFERENCE_FILES[split], config.task
    tally, judged = while_unchanged((task, name), [path], partial(_tally, path, name, task))
    problems = tally.result(split, SAMPLES[task])
    if not problems and isinstance(config, KtoConfig):
        if judged.total() < FEWEST_TO_COMPARE:
            msg = f"{split} has a single record, expected at least {FEWEST_TO_COMPARE}: task kto compares"
            msg += " each prompt's response with that of another record"
            problems = [Problem((name,), msg, "Add records.")]
        else:
            found.warnings += _doubts(split, judged, config)
    found.problems += problems
    found.statistics[split] = dict(tally.statistics)


def _doubts(split: str, judged: Counter[bool | None], config: KtoConfig) -> Iterator[Problem]:
    """Warnings about how many responses of each kind there are."""
    counts = judged[True], judged[False]
    if warning := one_judgement(split, *counts):
        yield warning
    elif split == "train":
        weights = config.desirable_weight, config.undesirable_weight
        if warning := out_of_balance(split, *counts, weights):
            yield warning


def _tally(path: Path, name: str, task: str) -> tuple[Tally, Counter[bool | None]]:
    """What the lines add up to, and how many responses were judged good, bad, or not at all."""
    judged: Counter[bool | None] = Counter()

    def parse(line: bytes) -> PreferenceRecord:
        record = PARSERS[task](line)
        judged[record.desirable] += 1
        return record

    tally = Tally(name, parse)
    tally.read(path, path.name)
    return tally, judged
