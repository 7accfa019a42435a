"""Weights from a model into a directory, in Hugging Face's layout."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.files import write_json
from trainer.models.packed import PackedLayer
from trainer.models.safetensors_file import TensorHeader, write_safetensors
from trainer.models.weights import INDEX_FILE, Weight

if TYPE_CHECKING:
    from trainer.models.base import CausalLM

MAX_SHARD_BYTES = 5 * 10**9

_WEIGHT_FILE = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
#: The dtypes of weights, by their names in safetensors files.
PADDLE_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_DISK_DTYPES = {ours: theirs for theirs, ours in PADDLE_DTYPES.items()}


def save_weights(model: "CausalLM", directory: Path, max_shard_bytes: int = MAX_SHARD_BYTES) -> None:
    """Write a model's weights: one file, or shards and an index when they are more than `max_shard_bytes`.

    Every file appears whole or not at all, and the index last. Weight files of an earlier save go when all is
    written, their index first.
    """
    weights = model.parameter_names()
    headers = {name: tensor_header(weight) for name, weight in weights.items()}
    packed = {path: layer for path, layer in model.named_sublayers() if isinstance(layer, PackedLayer)}
    for path, layer in packed.items():
        headers |= {f"{path}.{part}": header for part, header in layer.packed_headers().items()}
    files = shards(headers, max_shard_bytes)

    def read(name: str) -> np.ndarray:
        if weight := weights.get(name):
            return weight.turned(weight.parameter).numpy()
        path, _, part = name.rpartition(".")
        return packed[path].packed_tensors()[part]

    for file, names in files.items():
        write_safetensors(directory / file, {name: headers[name] for name in names}, read, {"format": "pt"})
    written = set(files)
    if len(files) > 1:
        write_json(directory / INDEX_FILE, index_content(headers, files))
        written.add(INDEX_FILE)
    remove_stale_weights(directory, written)


def remove_stale_weights(directory: Path, written: Collection[str]) -> None:
    """Remove the weight files of an earlier save, their index first; `written` are those to keep."""
    stale = [path for path in directory.iterdir() if _WEIGHT_FILE.fullmatch(path.name)]
    for path in sorted(stale, key=lambda path: path.name != INDEX_FILE):
        if path.name not in written:
            path.unlink()


def tensor_header(weight: Weight) -> TensorHeader:
    """What a safetensors header says about a weight."""
    dtype = _DISK_DTYPES[str(weight.parameter.dtype).removeprefix("paddle.")]
    return TensorHeader(dtype, tuple(weight.disk_shape))


def shards(
    headers: Mapping[str, TensorHeader], limit: int | None, base: str = "model"
) -> dict[str, list[str]]:
    """File name → tensor names, each file as full as the limit in bytes allows; None: one file.

    Tensors are ordered by the words and numbers of their names, so the files do not depend on the order in
    which a process, or several, came by them. A tensor larger than the limit has a shard of its own.
    """
    groups: list[list[str]] = [[]]
    size = 0
    for name in sorted(headers, key=_natural):
        if groups[-1] and limit is not None and size + headers[name].bytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += headers[name].bytes
    if len(groups) == 1:
        return {f"{base}.safetensors": groups[0]}
    count = len(groups)
    return {
        f"{base}-{number:05d}-of-{count:05d}.safetensors": names
        for number, names in enumerate(groups, start=1)
    }


def index_content(headers: Mapping[str, TensorHeader], files: Mapping[str, list[str]]) -> dict[str, Any]:
    """Content of the index of several files; `files` are those that `shards` made of `headers`."""
    total = sum(header.bytes for header in headers.values())
    places = {name: file for file, names in files.items() for name in names}
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Sorts layer 2 before layer 10."""
    words = re.split(r"[./]", name)
    return [(not word.isdigit(), int(word) if word.isdigit() else 0, word) for word in words]
