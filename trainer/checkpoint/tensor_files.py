"""Safetensors files that several processes fill: made at full size, then written rectangle by rectangle.

The bytes are those that `trainer.models.safetensors_file.write_safetensors` writes.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainer.checkpoint.regions import Region, as_slices, region_shape, region_size, runs
from trainer.config.problems import DataError
from trainer.files import write_json, writing
from trainer.models.safetensors_file import SafetensorsFile, TensorHeader
from trainer.turning import put_turned

if TYPE_CHECKING:
    from trainer.checkpoint.plan import Plan
    from trainer.checkpoint.snapshot import Copied

# What is turned and written at once.
_BLOCK_BYTES = 4 << 20


def make_files(directory: Path, plan: Plan, host: int = 0) -> None:
    """Make all files of a host with their headers, and on the first the indices; the bytes of the tensors are
    reserved on the disk.

    Raises:
        WriteError: they have no room.
    """
    for file in plan.files:
        if file.home != host:
            continue
        path = directory / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing(path), path.open("wb") as out:
            out.write(file.head)
            out.flush()
            # A disk that is too small says so now, and not after minutes of writing.
            os.posix_fallocate(out.fileno(), 0, file.size)
    for path, content in plan.indices.items() if host == 0 else ():
        write_json(directory / path, content)


def write_pieces(directory: Path, pieces: Iterable[Copied], threads: int = 1) -> Collection[Path]:
    """Write rectangles to their places in files that `make_files` made; returns these files, not yet synced.

    The pieces are taken in the calling thread, a few ahead of those that are being written.
    """
    descriptors: dict[Path, int] = {}
    writer = _Writer()
    waiting: list[Future[None]] = []
    try:
        with ThreadPoolExecutor(threads, "write") as pool:
            for copied in pieces:
                path = directory / copied.place.path
                if path not in descriptors:
                    descriptors[path] = os.open(path, os.O_WRONLY)
                values = copied.disk_values()
                waiting.append(pool.submit(writer.write, descriptors[path], copied, values))
                if len(waiting) > threads:
                    waiting.pop(0).result()
            for written in waiting:
                written.result()
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)
    return descriptors.keys()


class _Writer(threading.local):
    """Writes rectangles; each thread keeps the memory in which it turns them."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def write(self, descriptor: int, copied: Copied, values: np.ndarray) -> None:
        """Write a rectangle, whose numbers are `values` as they are on disk, to its place."""
        piece = copied.piece
        header, region = piece.header, piece.region
        if values.shape != region_shape(region) or values.itemsize != header.item_size:
            found = f"{values.dtype} {list(values.shape)}"
            expected = f"{header.dtype} {list(region_shape(region))}"
            raise ValueError(f"{piece.name}: got {found}, expected {expected}")
        for block, rows in blocks(region, header):
            data = self._contiguous(values[rows]).reshape(-1).view(np.uint8).data
            for run in runs(header.shape, block):
                part = data[run.start * header.item_size : run.stop * header.item_size]
                _write_all(descriptor, part, copied.place.offset + run.first * header.item_size)

    def _contiguous(self, values: np.ndarray) -> np.ndarray:
        if values.flags.c_contiguous:
            return values
        if self._memory.size < values.nbytes:
            self._memory = np.empty(values.nbytes, np.uint8)
        found = self._memory[: values.nbytes].view(values.dtype).reshape(values.shape)
        put_turned(found, values.T)
        return found


def blocks(
    region: Region, header: TensorHeader, most_bytes: int = _BLOCK_BYTES
) -> Iterator[tuple[Region, slice]]:
    """Some rows of a rectangle at a time: the part of it, and which of its rows these are."""
    (first, last), *others = region
    width = region_size(tuple(others)) * header.item_size
    step = max(1, most_bytes // max(1, width))
    for start in range(first, last, step):
        stop = min(start + step, last)
        yield ((start, stop), *others), slice(start - first, stop - first)


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


class TensorReader:
    """Reads rectangles of the tensors that lie in one file, or in several with an index.

    Attributes:
        names: of all tensors.
    """

    def __init__(self, directory: Path, stem: str) -> None:
        """Open the files.

        Args:
            stem: path of the files below the directory, as in `TensorFiles`.

        Raises:
            DataError: there are none, one is missing or it is not a whole safetensors file.
        """
        self._files: dict[str, SafetensorsFile] = {}
        for path in _paths(directory, stem):
            try:
                file = SafetensorsFile(path)
            except Exception as error:
                raise DataError(f"{path} cannot be read: {error}") from error
            self._files |= dict.fromkeys(file.headers, file)
        self.names = self._files.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor that is among `names`."""
        return self._files[name].headers[name].shape

    def read(self, name: str, region: Region) -> np.ndarray:
        """A rectangle of a tensor, float32; nothing else is read of a vector or a matrix."""
        found = np.empty(region_shape(region), np.float32)
        self.read_into(found, name, region, turned=False)
        return found

    def read_into(self, target: np.ndarray, name: str, region: Region, *, turned: bool) -> None:
        """As `read`, into memory that is there; `turned`: transposed."""
        for start, rows in self._files[name].pieces(name, _BLOCK_BYTES, as_slices(region)):
            if turned:
                put_turned(target[..., start : start + len(rows)], _floats(rows))
            else:
                target[start : start + len(rows)] = _floats(rows)


def _floats(numbers: np.ndarray) -> np.ndarray:
    """Numbers as `SafetensorsFile.pieces` gives them; bfloat16 is the upper half of a float32."""
    bits = numbers.dtype == np.uint16
    return (numbers.astype(np.uint32) << 16).view(np.float32) if bits else numbers


def _paths(directory: Path, stem: str) -> list[Path]:
    index = directory / f"{stem}.safetensors.index.json"
    if not index.is_file():
        return [directory / f"{stem}.safetensors"]
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{index} is not an index of tensors ({error!r})") from error
    if outside := [name for name in names if Path(str(name)).name != name]:
        raise DataError(f"{index} names {outside[0]!r}, which is not a file name")
    return [index.parent / name for name in sorted(names)]
