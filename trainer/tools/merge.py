"""Merging: an adapter and its base model become one model in Hugging Face's layout.

W + s B A is computed in float32 and cast once. Tensors go from the base's files to those of the result one at
a time, so memory holds the largest of them a few times and never the model, unless the base is in PaddleNLP's
layout.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.config.adapters import LoraSettings, read_adapter_settings
from trainer.config.problems import DataError, Problem
from trainer.files import write_json, writing
from trainer.models.safetensors_file import TensorHeader, write_safetensors
from trainer.models.weights import INDEX_FILE, SINGLE_FILE
from trainer.peft.loading import base_folder
from trainer.peft.lora.deltas import LoraDeltas
from trainer.tokenizers.loading import FILES as TOKENIZER_FILES
from trainer.tools.merge_base import BaseFile, base_files

log = logging.getLogger(__name__)

DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
_CONFIG, _GENERATION = "config.json", "generation_config.json"
# What a base's file may put before the path of a layer, or leave out.
_STEMS = ("", "model.", "transformer.")


class MergeStoppedError(Exception):
    """Merging was asked to stop; the result is not complete."""


@dataclass(frozen=True)
class Merged:
    """What a merge did.

    Attributes:
        tensors: number of tensors of the result.
        changed: how many of them the adapter changed.
        bytes: size of all tensors.
    """

    tensors: int
    changed: int
    bytes: int


def merge_adapter(
    adapter: Path,
    output: Path,
    base: str | Path | None = None,
    dtype: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Merged:
    """Write the base model with a LoRA adapter's changes to `output`, with the tokenizer of the adapter, or
    of the base when the adapter has none.

    Args:
        adapter: folder of the adapter.
        output: folder of the result; files of the same names are replaced, config.json last, and weight files
            of an earlier model are removed.
        base: folder or hub name of the base model; None: as the adapter says.
        dtype: float32, bfloat16 or float16; None: that of each tensor of the base.
        progress: told the tensors done and all tensors, after each of them.
        should_stop: asked before each tensor.

    Raises:
        DataError: the adapter or the base cannot be used, or they do not belong together; nothing is written.
            Or a number of the result is infinite or none; the folder holds no whole model then.
        MergeStoppedError: `should_stop` said so.
    """
    settings = read_adapter_settings(adapter)
    if not isinstance(settings, LoraSettings):
        msg = f"holds {settings.kind}, which is no change of weights; only LoRA adapters can be merged"
        raise DataError(Problem((str(adapter),), msg, "Load the adapter together with its base model."))
    folder = base_folder(adapter, settings, base)
    for source, kind in ((folder, "base model"), (adapter, "adapter")):
        if output.resolve() == source.resolve():
            raise DataError(Problem((str(output),), f"is the folder of the {kind}", "Choose another one."))
    files = base_files(folder)
    deltas = LoraDeltas(settings, adapter)
    merge = _Merge(files, deltas, _matches(files, deltas), dtype, progress, should_stop)
    output.mkdir(parents=True, exist_ok=True)
    (output / _CONFIG).unlink(missing_ok=True)
    merge.write(output)
    merge.remove_others(output)
    _copy_rest(folder, adapter, output, dtype)
    return Merged(merge.total, len(deltas.paths), merge.bytes)


class _Merge:
    """Files of the base on their way into the result."""

    def __init__(
        self,
        files: Sequence[BaseFile],
        deltas: LoraDeltas,
        matches: dict[str, str],
        dtype: str | None,
        progress: Callable[[int, int], None] | None,
        should_stop: Callable[[], bool],
    ) -> None:
        self._files, self._deltas, self._matches = files, deltas, matches
        self._dtype = DTYPES[dtype] if dtype else None
        self._progress, self._should_stop = progress, should_stop
        self._written: set[str] = set()
        self._done = 0
        self.total = sum(len(file.headers) for file in files)
        self.bytes = 0

    def write(self, output: Path) -> None:
        """One file for each of the base, under the same name, and the index."""
        places: dict[str, str] = {}
        for file in self._files:
            headers = {name: self._header(header) for name, header in file.headers.items()}
            write_safetensors(output / file.path.name, headers, self._reader(file, headers), file.metadata)
            places |= dict.fromkeys(headers, file.path.name)
            self._written.add(file.path.name)
            self.bytes += sum(header.bytes for header in headers.values())
        if self._written != {SINGLE_FILE}:
            content = {"metadata": {"total_size": self.bytes}, "weight_map": dict(sorted(places.items()))}
            write_json(output / INDEX_FILE, content)
            self._written.add(INDEX_FILE)

    def remove_others(self, output: Path) -> None:
        """Remove the weight files of an earlier model: an index of it would hide those of this one."""
        for path in [output / INDEX_FILE, *output.glob("model*.safetensors")]:
            if path.name not in self._written:
                path.unlink(missing_ok=True)

    def _header(self, header: TensorHeader) -> TensorHeader:
        return TensorHeader(self._dtype or header.dtype, header.shape)

    def _reader(self, file: BaseFile, headers: dict[str, TensorHeader]) -> Callable[[str], np.ndarray]:
        def read(name: str) -> np.ndarray:
            if self._should_stop():
                raise MergeStoppedError
            tensor, dtype = file.read(name), headers[name].dtype
            path = self._matches.get(name)
            with np.errstate(over="ignore", invalid="ignore"):  # said below, in words
                if path:
                    tensor = tensor.astype(np.float32)
                    tensor += self._deltas.delta(path)
                stored = as_stored(tensor, dtype)
            if (path or dtype != file.headers[name].dtype) and not all_finite(stored, dtype):
                raise DataError(_not_finite(name, dtype))
            self._done += 1
            if self._progress:
                self._progress(self._done, self.total)
            return stored

        return read


def as_stored(tensor: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers in the bytes of a safetensors dtype; bfloat16 is rounded to the nearest, ties to even."""
    if dtype != "BF16":
        return tensor.astype({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype])
    bits = np.ascontiguousarray(tensor, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40  # rounding could make an infinity of a NaN
    return np.where(np.isnan(tensor), quiet, rounded).astype("<u2")


def all_finite(stored: np.ndarray, dtype: str) -> bool:
    """Whether no number, in the bytes of a safetensors dtype, is infinite or NaN."""
    if dtype != "BF16":
        return bool(np.isfinite(stored).all())
    exponent = np.uint16(0x7F80)
    return bool(((stored & exponent) != exponent).all())


def _not_finite(name: str, dtype: str) -> Problem:
    msg = f"has numbers that are infinite or NaN as {dtype}"
    return Problem((name,), msg, "Choose float32 or bfloat16 as dtype, or look for NaN in adapter and base.")


def _matches(files: Sequence[BaseFile], deltas: LoraDeltas) -> dict[str, str]:
    """Which layer of the adapter changes which tensor of the base; every layer changes exactly one.

    Raises:
        DataError: a layer has no tensor, or one of another shape.
    """
    stored = {name: header for file in files for name, header in file.headers.items()}
    matches: dict[str, str] = {}
    problems: list[Problem] = []
    hint = "Use the base model that the adapter was trained on."
    for path in deltas.paths:
        bare = path.removeprefix("model.").removeprefix("transformer.")
        name = next((f"{stem}{bare}.weight" for stem in _STEMS if f"{stem}{bare}.weight" in stored), None)
        if name is None:
            problems.append(Problem((path,), "is adapted, and the base model has no such layer", hint))
            continue
        header = stored[name]
        if header.shape != deltas.shape(path):
            msg = f"is adapted as {list(deltas.shape(path))}, the base model has {list(header.shape)}"
            problems.append(Problem((path,), msg, hint))
        if name in matches:
            problems.append(Problem((path,), f"changes {name}, and so does {matches[name]}", hint))
        matches[name] = path
    if not deltas.paths:
        problems.append(Problem(("lora_path",), "the adapter has no matrices, so it changes nothing"))
    if problems:
        raise DataError(problems)
    return matches


def _copy_rest(base: Path, adapter: Path, output: Path, dtype: str | None) -> None:
    """Tokenizer, generation_config.json and, last, config.json."""
    source = adapter if any((adapter / name).is_file() for name in TOKENIZER_FILES[:3]) else base
    for folder, name in [*((source, name) for name in TOKENIZER_FILES), (base, _GENERATION)]:
        if (folder / name).is_file():
            with writing(output / name):
                shutil.copyfile(folder / name, output / name)
    content: dict[str, Any] = json.loads((base / _CONFIG).read_bytes())
    if dtype:
        content["dtype" if "dtype" in content else "torch_dtype"] = dtype
    write_json(output / _CONFIG, content)
