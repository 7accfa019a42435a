"""Finding the data files of a folder, and reading them line by line whatever their size."""

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainer.config.problems import DataError, Problem

SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
LONGEST_LINE = 64 * 1024 * 1024
LARGEST_RATIO = 200
"""How many times its packed size a gzip file may have; what is below `FEW_BYTES` may have any."""
FEW_BYTES = 256 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
FIELD = "dataset_name_or_path"
PREFERENCE_FILES = {"train": "train_dataset_path", "dev": "dev_dataset_path"}
"""The arguments of dpo and kto that name the file of a split."""


def find_data_files(folder: Path, splits: Sequence[str] = ("train", "dev")) -> dict[str, tuple[Path, ...]]:
    """The files of each split; a split without files has an empty tuple.

    A split is the file `<split>.json`, else all such files in the folder `<split>/` by name. `.jsonl` and
    gzip (`.gz`) will do as well.

    Raises:
        DataError: a split has several files of its name, or the folder cannot be read.
    """
    try:
        return {split: _files_of(folder, split) for split in splits}
    except OSError as error:
        raise DataError(Problem((FIELD,), f"{folder}: {error.strerror or error}")) from None


def calibration_split(folder: Path) -> str:
    """The split that quantization is calibrated on: `quant` where there is one, else `train`.

    Raises:
        DataError: as `find_data_files`.
    """
    return "quant" if find_data_files(folder, ("quant",))["quant"] else "train"


def _files_of(folder: Path, split: str) -> tuple[Path, ...]:
    names = [name for suffix in SUFFIXES if os.path.isfile(name := os.path.join(folder, f"{split}{suffix}"))]
    files = list(map(Path, names))
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        raise DataError(Problem((FIELD,), f"{folder} has {names}, expected one of them", "Keep one."))
    if files or not os.path.isdir(os.path.join(folder, split)):
        return tuple(files)
    inside = sorted((folder / split).iterdir())
    return tuple(path for path in inside if path.name.endswith(SUFFIXES) and path.is_file())


def read_lines(path: Path, field: str = FIELD) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line) of every line that is not blank, unpacked when the name ends in `.gz`.

    Args:
        path: the file.
        field: the argument that names it or its folder, for messages.

    Raises:
        DataError: the file cannot be read or unpacked, is a JSON array, has a line above 64 MiB, or unpacks
            to very much more than it is.
    """
    packed = path.suffix == ".gz"
    try:
        with gzip.open(path, "rb") if packed else path.open("rb") as stream:
            largest = max(FEW_BYTES, LARGEST_RATIO * path.stat().st_size)
            number = size = 0
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                size += len(line)
                if packed and size > largest:
                    raise _unreadable(
                        field,
                        path,
                        f"it unpacks to more than {LARGEST_RATIO} times its size, as no text does",
                        "Write it without gzip.",
                    )
                if number == 1:
                    line = line.removeprefix(BOM)
                    _refuse_array(field, path, line)
                if len(line) > LONGEST_LINE:
                    raise _unreadable(
                        field, path, f"line {number} is longer than 64 MiB", "Put one record on a line."
                    )
                if line.strip():
                    yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _unreadable(
            field, path, f"it cannot be unpacked: {error}", "Write the gzip file again."
        ) from None
    except OSError as error:
        raise _unreadable(field, path, error.strerror or str(error), "Make it readable.") from None


def _refuse_array(field: str, path: Path, first_line: bytes) -> None:
    if first_line.lstrip().startswith(b"["):
        raise _unreadable(
            field,
            path,
            "it is one JSON array, expected JSON lines (one object per line)",
            "Convert it, for example with: jq -c '.[]' OLD > NEW",
        )


def _unreadable(field: str, path: Path, why: str, hint: str) -> DataError:
    return DataError(Problem((field, path.name), f"{path.name}: {why}", hint))
