"""The base model of a merge: its files, or those it would have in Hugging Face's layout.

PaddleNLP's files turn, rename and fuse tensors as the model's structure says, so such a base is loaded whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from safetensors import SafetensorError

from trainer.config.problems import DataError, Problem
from trainer.models.directory import CONFIG_FILE, load_model
from trainer.models.safetensors_file import FLOATS, SafetensorsFile, TensorHeader
from trainer.models.weights import WeightMap
from trainer.models.weights_layout import Layout
from trainer.models.weights_load import weight_files
from trainer.models.weights_save import MAX_SHARD_BYTES, shards, tensor_header

_HINT = "Copy the base model again."
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


class BaseFile(Protocol):
    """One file of a base model in Hugging Face's layout; see `SafetensorsFile`."""

    @property
    def path(self) -> Path: ...

    @property
    def headers(self) -> Mapping[str, TensorHeader]: ...

    @property
    def metadata(self) -> Mapping[str, str]: ...

    def read(self, name: str) -> np.ndarray:
        """One tensor; bfloat16 comes as float32."""
        ...


@dataclass(frozen=True)
class ModelFile:
    """A file that a model in memory would be saved as; see `BaseFile`."""

    path: Path
    headers: Mapping[str, TensorHeader]
    metadata: Mapping[str, str]
    weights: WeightMap

    def read(self, name: str) -> np.ndarray:
        """See `BaseFile`."""
        weight = self.weights[name]
        tensor = weight.turned(weight.parameter)
        return (tensor.astype("float32") if self.headers[name].dtype == "BF16" else tensor).numpy()


def base_files(folder: Path, max_shard_bytes: int = MAX_SHARD_BYTES) -> Sequence[BaseFile]:
    """The files of a base model in Hugging Face's layout.

    Args:
        folder: of the base model.
        max_shard_bytes: size of the files that a base in PaddleNLP's layout is thought to have.

    Raises:
        DataError: the folder has no config.json or no weights, a file cannot be read, a tensor has no
            floats, or a base in PaddleNLP's layout cannot be loaded.
    """
    model_type = _model_type(folder / CONFIG_FILE)
    files = [_open(path) for path in weight_files(folder)]
    if not any(Layout.of(file, model_type) is Layout.PADDLENLP for file in files):
        return files
    dtypes = {header.dtype for file in files for header in file.headers.values()}
    model = load_model(folder, _DTYPES.get(dtypes.pop(), "float32") if len(dtypes) == 1 else "float32")
    weights = model.parameter_names()
    headers = {name: tensor_header(weight) for name, weight in weights.items()}
    return [
        ModelFile(folder / file, {name: headers[name] for name in names}, {"format": "pt"}, weights)
        for file, names in shards(headers, max_shard_bytes).items()
    ]


def _model_type(path: Path) -> str:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(Problem((str(path),), f"cannot be read ({error})", _HINT)) from None
    if not isinstance(content, dict):
        raise DataError(Problem((str(path),), "is not a JSON object", _HINT))
    return str(content.get("model_type"))


def _open(path: Path) -> SafetensorsFile:
    try:
        file = SafetensorsFile(path)
    except (SafetensorError, OSError) as error:
        raise DataError(Problem((str(path),), f"is not a whole safetensors file ({error})", _HINT)) from None
    strange = {name: header.dtype for name, header in file.headers.items() if header.dtype not in FLOATS}
    if strange:
        expected = ", ".join(FLOATS)
        raise DataError(
            [
                Problem((str(path), name), f"is {dtype}, expected {expected}", _HINT)
                for name, dtype in strange.items()
            ]
        )
    return file
