"""Several processes that save together, without Paddle's communication."""

import pickle
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoint.pieces import Contents, Piece, TensorFiles
from trainer.checkpoint.ranks import Ranks
from trainer.checkpoint.regions import as_slices, whole
from trainer.checkpoint.saver import Saver
from trainer.checkpoint.target import whole_directory_target
from trainer.files import atomic_file
from trainer.models.safetensors_file import TensorHeader

#: Rows and columns of the test's matrices; the rows divide by 1, 2 and 4.
SHAPE = (64, 48)


def write_directory(target: Path, write: Callable[[Path], None]) -> None:
    """Save a directory without tensors."""
    Saver(target.parent).save(whole_directory_target(target), Contents([], [write]))


class FolderGather:
    """Exchanges objects through files of a folder that all processes have."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self._folder, self._rank, self._size = folder, rank, size
        self._numbers = count()

    def __call__(self, value: Any) -> list[Any]:
        number = next(self._numbers)
        with atomic_file(self._folder / f"{number}.{self._rank}") as file:
            file.write(pickle.dumps(value))
        paths = [self._folder / f"{number}.{rank}" for rank in range(self._size)]
        while not all(path.exists() for path in paths):
            time.sleep(0.005)
        return [pickle.loads(path.read_bytes()) for path in paths]  # noqa: S301


def ranks_through(folder: Path, rank: int, size: int, hosts: int = 1) -> Ranks:
    """The place of a process among `size` ones that all have `folder`, on hosts that share no other."""
    gather = FolderGather(folder, rank, size)

    def meet() -> None:
        gather(None)

    return Ranks(rank, size, gather, hosts, meet)


def matrix(number: int, step: int = 0) -> np.ndarray:
    """Matrix `number` after `step` steps."""
    drawn = np.random.default_rng((number, step)).standard_normal(SHAPE)
    return drawn.astype(np.float32)


def part(rank: int, size: int, number: int, step: int = 0) -> Piece:
    """The rows (of even matrices) or columns (of odd ones) that a process has of a matrix."""
    array, axis = matrix(number, step), number % 2
    length = SHAPE[axis] // size
    region = list(whole(SHAPE))
    region[axis] = (rank * length, (rank + 1) * length)
    values = np.ascontiguousarray(array[as_slices(tuple(region))])
    return Piece(f"layers.{number}.weight", TensorHeader("F32", SHAPE), tuple(region), False, lambda: values)


def replica(step: int = 0) -> Piece:
    """A vector that all processes have."""
    values = np.arange(SHAPE[0], dtype=np.float32) + step
    return Piece("norm.weight", TensorHeader("F32", values.shape), whole(values.shape), False, lambda: values)


def checkpoint(rank: int, size: int, step: int = 0, matrices: int = 4) -> Contents:
    """What a process puts into a checkpoint: its parts of weights and moments, and a text."""
    weights = (*(part(rank, size, number, step) for number in range(matrices)), replica(step))
    moments = tuple(part(rank, size, number, step + 1) for number in range(matrices))

    def write_state(directory: Path) -> None:
        (directory / "trainer_state.json").write_text(f'{{"global_step": {step}}}')

    limit = 3 * 4 * SHAPE[0] * SHAPE[1]
    return Contents(
        [TensorFiles("model", "pt", weights, limit), TensorFiles("optimizer", "np", moments)], [write_state]
    )
