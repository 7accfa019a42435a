"""The weight files of a model folder: whether all of them are there and whole. Reads headers, no tensor.

Format of a file: https://huggingface.co/docs/safetensors
"""

import json
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config.preflight.folder import LARGEST_JSON, FolderError, json_object, plain_file
from trainer.config.preflight.paths import Finder
from trainer.config.values import show

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16}
BITS |= {"U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64}


@dataclass(frozen=True)
class Tensor:
    """What a header says about one tensor: dtype, numbers in it, and where its bytes lie."""

    dtype: str
    numbers: int
    begin: int
    end: int

    @classmethod
    def read(cls, entry: Any) -> "Tensor":
        """One entry of a header. Raises: ValueError when it is none, or its size is not that of its shape."""
        match entry:
            case {"dtype": str() as dtype, "shape": list() as shape, "data_offsets": [begin, end]} if all(
                type(number) is int and number >= 0 for number in (*shape, begin, end)
            ):
                tensor = cls(dtype, math.prod(shape), begin, end)
                if dtype not in BITS or tensor.numbers * BITS[dtype] == 8 * (end - begin):
                    return tensor
        raise ValueError(f"no tensor: {entry}")


@dataclass(frozen=True)
class Weights:
    """All tensors of a model: how many, their bytes, and the numbers in them."""

    tensors: int
    bytes: int
    numbers: int


def read_weights(folder: Path, finder: Finder) -> Weights:
    """What the files hold; every file, and every tensor that the index names, is there and complete.

    Raises:
        FolderError: something is missing, broken or elsewhere.
        OSError: something cannot be read.
    """
    if (folder / INDEX).is_file():
        weight_map = json_object(plain_file(folder, INDEX, finder)).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise FolderError(f"{INDEX} has no weight_map", "Copy the file again.")
    elif (folder / SINGLE).is_file():
        weight_map = dict.fromkeys(_header(plain_file(folder, SINGLE, finder)), SINGLE)
    else:
        raise _no_weights(folder)
    headers = {
        name: _header(_shard(folder, name, finder)) for name in sorted(set(map(str, weight_map.values())))
    }
    for tensor, name in weight_map.items():
        if tensor not in headers[str(name)]:
            raise FolderError(f"{name} lacks the tensor {show(tensor)} that {INDEX} names", "Copy it again.")
    tensors = [tensor for header in headers.values() for tensor in header.values()]
    return Weights(
        len(weight_map),
        sum(tensor.end - tensor.begin for tensor in tensors),
        sum(tensor.numbers for tensor in tensors),
    )


def _shard(folder: Path, name: str, finder: Finder) -> Path:
    if "/" in name or name in ("", ".", ".."):
        raise FolderError(f"{INDEX} names {show(name)}, expected a file of the same folder", "Correct it.")
    if not (folder / name).is_file():
        raise FolderError(f"the shard {name} that {INDEX} names is missing", "Copy the whole model folder.")
    return plain_file(folder, name, finder)


def _no_weights(folder: Path) -> FolderError:
    others = [
        path.name for pattern in ("*.bin", "*.pdparams", "*.pt") for path in sorted(folder.glob(pattern))
    ]
    if others:
        msg = f"{folder} has {others[0]} but no {SINGLE}; pickled weights are not read"
        return FolderError(msg, "Convert the weights to safetensors.")
    return FolderError(
        f"{folder} has no weights, expected {SINGLE} or shards with {INDEX}", "Copy the whole model folder."
    )


def _header(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name. Raises: FolderError when it is not whole."""
    broken = FolderError(f"{path.name} is not a whole safetensors file", "Copy the file again.")
    size = path.stat().st_size
    with path.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        if length > min(size - 8, LARGEST_JSON):
            raise broken
        try:
            header = json.loads(stream.read(length))
            tensors = {name: Tensor.read(entry) for name, entry in header.items() if name != "__metadata__"}
        except (ValueError, AttributeError, RecursionError):
            raise broken from None
    if not _fill(tensors.values(), size - 8 - length):
        raise broken
    return tensors


def _fill(tensors: Iterable[Tensor], size: int) -> bool:
    """Whether the tensors lie one behind the other, without a gap, in all of the `size` bytes."""
    position = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end)):
        if tensor.begin != position or tensor.end < tensor.begin:
            return False
        position = tensor.end
    return position == size
