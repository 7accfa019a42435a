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

from trainer.models.directory import CONFIG_FILE, load_model
from trainer.models.safetensors_file import SafetensorsFile, TensorHeader
from trainer.models.weights import WeightMap
from trainer.models.weights_layout import Layout
from trainer.models.weights_load import weight_files
from trainer.models.weights_save import MAX_SHARD_BYTES, shards, tensor_header

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
        DataError: the folder has no weights, or a base in PaddleNLP's layout cannot be loaded.
    """
    files = [SafetensorsFile(path) for path in weight_files(folder)]
    model_type = str(json.loads((folder / CONFIG_FILE).read_bytes()).get("model_type"))
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
