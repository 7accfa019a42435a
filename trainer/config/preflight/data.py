"""The data: every line of every file is read once, errors are counted by kind and the first ones shown."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainer.config.data_files import FIELD, calibration_split, find_data_files, read_lines
from trainer.config.data_kinds import SAMPLES
from trainer.config.preflight.paths import Finder
from trainer.config.preflight.unchanged import while_unchanged
from trainer.config.problems import DataError, Problem
from trainer.config.records import RecordError, parse_sft_line
from trainer.config.schema import QuantizeConfig, SftConfig

SHOWN_ERRORS = 10


def check_data(
    folder: Path, finder: Finder, config: SftConfig
) -> tuple[list[Problem], dict[str, dict[str, Any]]]:
    """Problems of the data, and for each split that is used `files`, `examples`, `turns` and `bytes`."""
    try:
        first = calibration_split(folder) if isinstance(config, QuantizeConfig) else "train"
        files = find_data_files(folder, (first, "dev"))
    except DataError as error:
        return list(error.problems), {}
    needed = config.do_train or isinstance(config, QuantizeConfig)
    used = [split for split, wanted in ((first, needed), ("dev", config.do_eval)) if wanted]
    problems: list[Problem] = []
    statistics: dict[str, dict[str, Any]] = {}
    for split in used:
        if not files[split]:
            problems.append(_missing(folder, split, config))
            continue
        allowed = [path for path in files[split] if finder.allows(path)]
        problems += [_outside(path) for path in files[split] if path not in allowed]
        if not allowed:
            continue
        tally = while_unchanged(("sft", folder), allowed, partial(_tally, folder, allowed))
        problems += tally.result(split, SAMPLES["sft"])
        statistics[split] = dict(tally.statistics)
    return problems, statistics


def _outside(path: Path) -> Problem:
    msg = f"{path.name} is a link to a place outside the allowed folders"
    return Problem((FIELD, path.name), msg, "Copy the file itself.")


def _tally(folder: Path, files: Sequence[Path]) -> "Tally":
    tally = Tally(FIELD, parse_sft_line)
    for path in files:
        tally.read(path, str(path.relative_to(folder)))
    return tally


def _missing(folder: Path, split: str, config: SftConfig) -> Problem:
    if isinstance(config, QuantizeConfig) and split == "train":
        msg = f"{folder} has no quant.json and no train.json, which quantization is calibrated on"
        return Problem((FIELD,), msg, "Add JSON lines like those that the model will answer.")
    why = "do_train" if split == "train" else "do_eval"
    msg = f"{folder} has no {split}.json and no folder {split} with JSON lines, and {why} is true"
    otherwise = "" if split == "train" else ", or set evaluation_strategy to no and do_eval to false"
    return Problem((FIELD,), msg, f"Add the file{otherwise}.")


class Tally:
    """What the lines of one split add up to.

    Args:
        field: the argument that names the files, for messages.
        parse: makes a record of a line, or raises RecordError.
    """

    def __init__(self, field: str, parse: Callable[[bytes], Any]) -> None:
        self._field = field
        self._parse = parse
        self.problems: list[Problem] = []
        self.errors: Counter[str] = Counter()
        self.lines = 0
        self.statistics: dict[str, Any] = {"files": 0, "examples": 0, "turns": 0, "bytes": 0}

    def read(self, path: Path, name: str) -> None:
        """Count the records of one more file; `name` is its name in messages."""
        try:
            self.statistics["files"] += 1
            self.statistics["bytes"] += path.stat().st_size
            for number, line in read_lines(path, self._field):
                self.add(name, number, line)
        except DataError as error:
            self.problems += error.problems
        except OSError as error:
            self.problems.append(
                Problem((self._field, name), f"{name}: {error.strerror}", "Make it readable.")
            )

    def add(self, name: str, number: int, line: bytes) -> Any | None:
        """Count one line; its record, None when it is not one."""
        self.lines += 1
        try:
            record = self._parse(line)
        except RecordError as error:
            self._error(name, number, error)
            return None
        self.statistics["examples"] += 1
        self.statistics["turns"] += len(record.src)
        return record

    def _error(self, name: str, number: int, error: RecordError) -> None:
        self.errors[error.kind] += 1
        if self.errors.total() <= SHOWN_ERRORS:
            self.problems.append(Problem((self._field, name, number), f"line {number}: {error.message}"))

    def result(self, split: str, sample: str) -> list[Problem]:
        """All problems of the split, with a summary in front when lines are broken; `sample` is a good
        line.
        """
        if total := self.errors.total():
            kinds = ", ".join(f"{count} x {kind}" for kind, count in self.errors.most_common())
            msg = f"{total} of {self.lines} lines of {split} cannot be used: {kinds}"
            hint = f"The first {SHOWN_ERRORS} follow." if total > SHOWN_ERRORS else "Correct or remove them."
            return [Problem((self._field,), msg, hint), *self.problems]
        if not self.problems and not self.statistics["examples"]:
            msg = f"{split} has no record, expected at least one"
            return [Problem((self._field,), msg, f"Add lines like {sample}.")]
        return self.problems
