"""Reading the records of a split, file after file, line after line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trainer.config.data_files import FIELD, find_data_files, read_lines
from trainer.config.problems import DataError, Problem
from trainer.config.records import RecordError, SftRecord, parse_sft_line


def read_records(folder: Path, split: str) -> Iterator[SftRecord]:
    """The records of `split` ("train" or "dev") in the order of files and lines.

    Raises:
        DataError: the split has no file, a file cannot be read, or a line is not a record; it is named.
    """
    files = find_data_files(folder)[split]
    if not files:
        raise DataError(
            Problem((FIELD,), f"{folder} has no {split}.json and no folder {split}", "Add JSON lines there.")
        )
    for path in files:
        name = str(path.relative_to(folder))
        for number, line in read_lines(path):
            try:
                record = parse_sft_line(line)
            except RecordError as error:
                problem = Problem(
                    (FIELD, name, number), f"line {number}: {error.message}", "Correct the line."
                )
                raise DataError(problem) from None
            yield replace(record, location=f"{name} line {number}")
