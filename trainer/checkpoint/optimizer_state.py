"""AdamW's state as named tensors that line up with the weights on disk.

A parameter that is stored as ``<name>`` has ``<name>/moment1`` and ``<name>/moment2`` (fp32, in the
orientation of the stored weight), ``<name>/beta1_power`` and ``<name>/beta2_power`` (shape [1]) and, in O2
mixed precision, ``<name>/master`` (the fp32 copy of the weight). Names follow the parameter and not the
process that held it, so the state can be read under any layout.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainer.checkpoint.pieces import WEIGHT, TensorFiles, held_pieces
from trainer.checkpoint.regions import as_slices, flat_parts, inside, place, region_shape
from trainer.checkpoint.tensor_files import TensorReader
from trainer.config.problems import DataError
from trainer.models.weights import Weight, WeightMap
from trainer.models.weights_save import MAX_SHARD_BYTES

if TYPE_CHECKING:
    from trainer.parallel.sharded_state import Kind, Span
    from trainer.parallel.update import Updater

OPTIMIZER_STEM = "optimizer"

_MASTER = "master"


def optimizer_files(update: Updater) -> TensorFiles:
    """What this process holds of the optimizer's state; before the first step it is empty."""
    return TensorFiles(OPTIMIZER_STEM, "np", tuple(held_pieces(update.state())), MAX_SHARD_BYTES)


def has_optimizer(directory: Path) -> bool:
    """Whether a checkpoint has optimizer state."""
    return any(
        (directory / f"{OPTIMIZER_STEM}.safetensors{ending}").is_file() for ending in ("", ".index.json")
    )


def load_optimizer(update: Updater, directory: Path) -> None:
    """Fill the optimizer with the state of a checkpoint, whatever layout wrote it.

    Raises:
        DataError: the files lack a parameter of the model, have another shape for it or cannot be read.
    """
    reader = PartReader(directory, OPTIMIZER_STEM, update.model.trained_weights())
    if reader.is_empty:
        return
    update.load_state(reader)


class PartReader:
    """Gives the parts of weights, or of the optimizer's state, that an updater asks for.

    Args:
        directory: a checkpoint.
        stem: of the files, as in `TensorFiles`.
        weights: all that is trained in this process.

    Raises:
        DataError: the files cannot be read.
    """

    def __init__(self, directory: Path, stem: str, weights: WeightMap) -> None:
        self._reader = TensorReader(directory, stem)
        self._path = directory / f"{stem}.safetensors"
        self._fused: dict[str, list[Weight]] = defaultdict(list)
        for weight in weights.values():
            self._fused[weight.parameter.name].append(weight)

    @property
    def is_empty(self) -> bool:
        """Whether it was saved before the first step."""
        return not self._reader.names

    def __call__(self, weight: Weight, kind: Kind, span: Span | None) -> np.ndarray | None:
        """What belongs to a parameter, float32, shaped like it; of a fused one, to all of its weights.

        Args:
            weight: of the parameter.
            kind: of the state.
            span: a range of the flattened parameter, to be given flat; None: all of it.

        Raises:
            DataError: the checkpoint does not have it.
        """
        if kind == _MASTER and f"{weight.name}/{kind}" not in self._reader.names:
            return None
        if kind.startswith("beta"):
            return self._reader.read(self._key(weight.name, kind, (1,)), ((0, 1),))
        shape = tuple(weight.parameter.shape)
        start, stop = span or (0, int(np.prod(shape)))
        flat = np.zeros(stop - start, np.float32)
        for part in flat_parts(shape, start, stop):
            rectangle = flat[part.start : part.stop].reshape(region_shape(part.region))
            for owner in self._fused[weight.parameter.name]:
                columns, turned = owner.columns, owner.transposed
                placed = place(part.region, owner.region, transposed=turned, columns=columns)
                if placed is not None:
                    key = self._key(owner.name, kind, tuple(owner.disk_shape))
                    there = as_slices(inside(placed.local, part.region))
                    self._reader.read_into(rectangle[there], key, placed.disk, turned=turned)
        return flat if span is not None else flat.reshape(shape)

    def _key(self, name: str, kind: str, shape: tuple[int, ...]) -> str:
        """The name of a tensor that is there, with this shape."""
        key = name if kind == WEIGHT else f"{name}/{kind}"
        if key not in self._reader.names:
            raise DataError(f"{self._path} has no {key}, so it belongs to another model")
        if (found := self._reader.shape(key)) != shape:
            msg = f"{self._path}: {key} has shape {list(found)}, the model expects {list(shape)}"
            raise DataError(msg)
        return key
