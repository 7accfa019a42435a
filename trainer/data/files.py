"""Reading the records of a split, file after file, line after line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trainer.config.data_files import FIELD, find_data_files, read_lines
from trainer.config.preference_records import PARSERS, PreferenceRecord
from trainer.config.problems import DataError, Problem
from trainer.config.records import RecordError, SftRecord, parse_sft_line

Record = TypeVar("Record", SftRecord, PreferenceRecord)


def read_records(folder: Path, split: str) -> Iterator[SftRecord]:
    """The records of `split` ("train", "dev" or "quant") in the order of files and lines.

    Raises:
        DataError: the split has no file, a file cannot be read, or a line is not a record; it is named.
    """
    files = find_data_files(folder, (split,))[split]
    if not files:
        raise DataError(
            Problem((FIELD,), f"{folder} has no {split}.json and no folder {split}", "Add JSON lines there.")
        )
    for path in files:
        yield from _records_of(path, str(path.relative_to(folder)), FIELD, parse_sft_line)


def read_preference_records(path: Path, task: str, field: str) -> Iterator[PreferenceRecord]:
    """The records of one file in the order of its lines.

    Args:
        path: the file.
        task: "dpo" or "kto".
        field: the argument that names the file, for messages.

    Raises:
        DataError: the file cannot be read, or a line is not a record of the task; it is named.
    """
    yield from _records_of(path, path.name, field, PARSERS[task])


def _records_of(path: Path, name: str, field: str, parse: Callable[[bytes], Record]) -> Iterator[Record]:
    for number, line in read_lines(path, field):
        try:
            record = parse(line)
        except RecordError as error:
            problem = Problem((field, name, number), f"line {number}: {error.message}", "Correct the line.")
            raise DataError(problem) from None
        yield replace(record, location=f"{name} line {number}")
