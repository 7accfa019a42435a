"""Weights from a model into a directory, in Hugging Face's layout."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainer.files import write_json
from trainer.models.safetensors_file import TensorHeader, write_safetensors
from trainer.models.weights import INDEX_FILE, SINGLE_FILE, Weight

if TYPE_CHECKING:
    from trainer.models.base import CausalLM

MAX_SHARD_BYTES = 5 * 10**9

_WEIGHT_FILE = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
_DISK_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def save_weights(model: "CausalLM", directory: Path, max_shard_bytes: int = MAX_SHARD_BYTES) -> None:
    """Write a model's weights: one file, or shards and an index when they are more than `max_shard_bytes`.

    A tensor larger than the limit has a shard of its own. Every file appears whole or not at all, and the
    index last. Weight files of an earlier save go when all is written, their index first.
    """
    weights = model.parameter_names()
    headers = {name: tensor_header(weight) for name, weight in weights.items()}
    files = shards(headers, max_shard_bytes)

    def read(name: str) -> np.ndarray:
        weight = weights[name]
        return weight.turned(weight.parameter).numpy()

    for file, names in files.items():
        write_safetensors(directory / file, {name: headers[name] for name in names}, read, {"format": "pt"})
    written = set(files)
    if len(files) > 1:
        total = sum(header.bytes for header in headers.values())
        places = {name: file for file, names in files.items() for name in names}
        content = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        write_json(directory / INDEX_FILE, content)
        written.add(INDEX_FILE)
    stale = [path for path in directory.iterdir() if _WEIGHT_FILE.fullmatch(path.name)]
    for path in sorted(stale, key=lambda path: path.name != INDEX_FILE):
        if path.name not in written:
            path.unlink()


def tensor_header(weight: Weight) -> TensorHeader:
    """What a safetensors header says about a weight."""
    dtype = _DISK_DTYPES[str(weight.parameter.dtype).removeprefix("paddle.")]
    return TensorHeader(dtype, tuple(weight.disk_shape))


def shards(headers: Mapping[str, TensorHeader], limit: int) -> dict[str, list[str]]:
    """File name → tensor names, in model order, each file as full as the limit allows."""
    groups: list[list[str]] = [[]]
    size = 0
    for name, header in headers.items():
        if groups[-1] and size + header.bytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += header.bytes
    if len(groups) == 1:
        return {SINGLE_FILE: groups[0]}
    count = len(groups)
    return {
        f"model-{number:05d}-of-{count:05d}.safetensors": names
        for number, names in enumerate(groups, start=1)
    }
