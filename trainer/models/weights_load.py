"""Weights from a directory into a model."""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from safetensors import SafetensorError

from trainer.config.problems import DataError, Problem
from trainer.models.placement import WHOLE
from trainer.models.registry import family
from trainer.models.safetensors_file import FLOATS, SafetensorsFile
from trainer.models.weights import INDEX_FILE, SINGLE_FILE, Weight, WeightMap
from trainer.models.weights_layout import Layout, StoredNames, Target

if TYPE_CHECKING:
    from trainer.models.base import CausalLM

# What is read at once: small enough to be turned in the processor's cache.
_PIECE_BYTES = 4 << 20
_SHARD = re.compile(r"model-\d+-of-(\d+)\.safetensors")
_PICKLES = ("*.pdparams", "*.bin", "*.pt", "*.pth", "*.ckpt")


def load_weights(model: "CausalLM", directory: Path, quantization: Any = None) -> None:
    """Fill a model's parameters from a directory.

    Every header is checked before the first tensor is read, those of tensors that are not here too. What is
    here is read once, a piece at a time, so memory holds little more than the model, and nothing else is
    read. Layouts and names: see `trainer.models.weights_layout`. float16, bfloat16, float32 and float64 are
    converted to the parameter's dtype.

    Args:
        model: gets the weights.
        directory: has the files.
        quantization: `quantization_config` of the model, whose quantized layers take the places of linear
            ones; None: there are none.

    Raises:
        DataError: tensors are missing, misshapen or unknown, or files cannot be read; all problems at once.
    """
    files = _open_all(weight_files(directory))
    apart: Collection[str] = ()
    if quantization is not None:
        from trainer.quantization.loading import load_quantized_layers

        apart = load_quantized_layers(model, files, quantization)
    here = model.parameter_names()
    for entry in _plan(whole_model(model), files, directory, apart):
        entry.fill(here)


def weight_files(directory: Path) -> list[Path]:
    """The weight files of a model directory: the shards its index names, its single file, or a whole set of
    numbered shards.

    Raises:
        DataError: there are none, the index cannot be read, or a shard is missing.
    """
    index = directory / INDEX_FILE
    if index.is_file():
        return _indexed_files(index)
    single = directory / SINGLE_FILE
    if single.is_file():
        return [single]
    shards = sorted(path for path in directory.glob("model-*.safetensors") if _SHARD.fullmatch(path.name))
    counts = {int(match[1]) for path in shards if (match := _SHARD.fullmatch(path.name))}
    if counts == {len(shards)}:
        return shards
    if shards:
        raise DataError(_file_problem(directory, f"has shards of weights but no {INDEX_FILE}"))
    raise DataError(_no_weights(directory))


@dataclass(frozen=True)
class _Entry:
    """One stored tensor on its way into the model; `turned_head` says that it is a transposed head."""

    file: SafetensorsFile
    stored: str
    target: Target
    layout: Layout
    turned_head: bool

    @paddle.no_grad()
    def fill(self, here: WeightMap) -> None:
        """Read what belongs to the weights that are `here`."""
        for owner, outputs in zip(self.target.weights, self.target.outputs(), strict=True):
            if weight := here.get(owner.name):
                for first, run in _runs(outputs[weight.region[0]]):
                    self._fill_run(weight, first, run)

    def _fill_run(self, weight: Weight, first: int, run: slice) -> None:
        """Read neighbouring outputs of the stored tensor: those of the region from `first` on."""
        region = (run, *weight.region[1:])
        outputs_first = not weight.transposed or self.layout is Layout.HUGGING_FACE
        if self.turned_head:
            outputs_first = False
        turn = outputs_first == weight.transposed
        pieces = self.file.pieces(self.stored, _PIECE_BYTES, region if outputs_first else region[::-1])
        for start, rows in pieces:
            place = ((first + start, 0) if outputs_first else (first, start))[: rows.ndim]
            weight.fill_piece(place[::-1] if weight.transposed else place, rows, turned=turn)


def _plan(
    model: "CausalLM", files: list[SafetensorsFile], directory: Path, apart: Collection[str]
) -> list[_Entry]:
    """Which stored tensor fills which parameter; every parameter is filled exactly once. Those named in
    `apart` fill none.

    Raises:
        DataError: everything that is wrong with that.
    """
    names = StoredNames(model, [name for file in files for name in file.headers])
    entries: list[_Entry] = []
    problems: list[Problem] = []
    filled: set[str] = set()
    for file in files:
        layout = Layout.of(file, model.config.model_type)
        for stored in file.headers:
            if stored in apart or names.is_spare(stored):
                continue
            target = names.target(stored)
            if target is None:
                problems.append(_problem(file.path, stored, "is not a tensor of this model"))
                continue
            entry = _entry(file, stored, target, layout, names)
            mine = {weight.name for weight in target.weights}
            wrong = "is stored twice" if mine & filled else _mismatch(entry)
            if wrong:
                problems.append(_problem(file.path, stored, wrong))
            filled |= mine
            entries.append(entry)
    problems += _missing(model, directory, filled)
    if problems:
        raise DataError(sorted(problems, key=lambda problem: problem.loc[-1]))
    return entries


def _entry(file: SafetensorsFile, stored: str, target: Target, layout: Layout, names: StoredNames) -> _Entry:
    """PaddleNLP stores a head of its own as `[hidden, vocabulary]` and a tied one like the embedding."""
    shape = list(file.headers[stored].shape)
    turned_head = (
        layout is Layout.PADDLENLP
        and names.is_head(target.weights[0])
        and shape != target.shape(layout)
        and shape[::-1] == target.shape(layout)
    )
    return _Entry(file, stored, target, layout, turned_head)


def _mismatch(entry: _Entry) -> str | None:
    header, layout = entry.file.headers[entry.stored], entry.layout
    shape, expected = list(header.shape), entry.target.shape(layout)
    if header.dtype not in FLOATS:
        return f"got {header.dtype}, expected one of {', '.join(FLOATS)}"
    if shape == expected or entry.turned_head:
        return None
    text = f"got shape {shape}, expected {expected}"
    if shape == expected[::-1]:
        form = entry.file.metadata.get("format", "none")
        text += f", because linear weights are {layout.value} in a file whose header says format: {form}"
    return text


def _missing(model: "CausalLM", directory: Path, filled: set[str]) -> list[Problem]:
    return [
        _problem(directory, name, f"is missing, expected a tensor of shape {weight.disk_shape}")
        for name, weight in model.parameter_names().items()
        if name not in filled
    ]


def _runs(numbers: np.ndarray) -> Iterator[tuple[int, slice]]:
    """Ascending numbers as (place of the first one, range of neighbours)."""
    edges = [0, *np.flatnonzero(np.diff(numbers) != 1) + 1, len(numbers)]
    for first, end in pairwise(map(int, edges)):
        if end > first:
            yield first, slice(int(numbers[first]), int(numbers[end - 1]) + 1)


def whole_model(model: "CausalLM") -> "CausalLM":
    """The model when all of it is here; otherwise a whole one like it, of shapes without values."""
    if model.placement == WHOLE:
        return model
    with paddle.LazyGuard():
        return family(model.config.model_type).model_class(model.config)


def _indexed_files(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        outside = [name for name in names if Path(name).name != name]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(_file_problem(index, f"is not an index of weight files ({error!r})")) from error
    missing = [name for name in names if name not in outside and not (index.parent / name).is_file()]
    problems = [_file_problem(index, f"names {name!r}, which is not a file name") for name in outside]
    problems += [_file_problem(index, f"names {name}, which is not there") for name in missing]
    if problems:
        raise DataError(problems)
    return [index.parent / name for name in names]


def _open_all(paths: list[Path]) -> list[SafetensorsFile]:
    files, problems = [], []
    for path in paths:
        try:
            files.append(SafetensorsFile(path))
        except (SafetensorError, OSError) as error:
            problems.append(_file_problem(path, f"is not a whole safetensors file ({error})"))
    if problems:
        raise DataError(problems)
    return files


def _no_weights(directory: Path) -> Problem:
    pickle = next((path for pattern in _PICKLES for path in sorted(directory.glob(pattern))), None)
    if pickle is None:
        return _file_problem(directory, f"has neither {SINGLE_FILE} nor {INDEX_FILE}")
    msg = f"has {pickle.name} but no {SINGLE_FILE}; that is a pickle, which can run any code when it is read"
    by_paddlenlp = "train with unified_checkpoint, or call save_pretrained(..., safe_serialization=True)"
    by_transformers = "load it in transformers where you trust it and call save_pretrained"
    how = by_paddlenlp if pickle.suffix == ".pdparams" else by_transformers
    return Problem((str(directory),), msg, f"Write the weights as safetensors: {how}.")


def _problem(path: Path, tensor: str, msg: str) -> Problem:
    return Problem((str(path), tensor), msg, "Use the weights that belong to this config.json.")


def _file_problem(path: Path, msg: str) -> Problem:
    return Problem((str(path),), msg, "Fetch the model again, or name another directory.")
