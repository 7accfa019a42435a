"""The safetensors format, one tensor at a time.

The safetensors library writes a file from tensors that are all in memory, and gives no bfloat16 to numpy.
Here tensors come and go one at a time, so a model is never held twice. The layout is the library's own, byte
for byte: an 8-byte little-endian header size, a JSON header padded with spaces to a multiple of 8, then the
tensors.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from trainer.files import atomic_file

# Item types as numpy reads them; bfloat16 is the upper half of a float32.
_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
FLOATS = tuple(_NUMPY)
_NUMPY |= {"I64": "<i8", "I32": "<i4", "I8": "|i1"}
DTYPES = tuple(_NUMPY)


@dataclass(frozen=True)
class TensorHeader:
    """What the header says about one tensor.

    Attributes:
        dtype: safetensors name, such as "BF16"; one of `DTYPES` for `write_safetensors`.
        shape: as on disk.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def item_size(self) -> int:
        """Bytes of one element."""
        return np.dtype(_NUMPY[self.dtype]).itemsize

    @property
    def bytes(self) -> int:
        """Size of the tensor's data."""
        return self.item_size * math.prod(self.shape)


class SafetensorsFile:
    """A safetensors file for reading. Data is read, not mapped: mapped pages would count as memory in use.

    Attributes:
        path: where it lies.
        headers: every tensor of the file by name.
        metadata: texts that the writer put into the header, such as `{"format": "pt"}`.
    """

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            SafetensorError: it is not a whole safetensors file.
        """
        with safe_open(path, framework="numpy"):
            pass  # the library has now checked the header and that all the data is there
        self.path = path
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        self.metadata: dict[str, str] = header.pop("__metadata__", None) or {}
        self._start = 8 + size
        self._offsets = {name: entry["data_offsets"][0] for name, entry in header.items()}
        self.headers = {
            name: TensorHeader(entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()
        }

    def read(self, name: str) -> np.ndarray:
        """One tensor whose dtype is among `DTYPES`; bfloat16 comes as float32, which holds it exactly."""
        header = self.headers[name]
        items = self.numbers(name, 0, math.prod(header.shape)).reshape(header.shape)
        if header.dtype == "BF16":
            return (items.astype(np.uint32) << 16).view(np.float32)
        return items

    def pieces(
        self, name: str, limit: int, region: tuple[slice, ...] = ()
    ) -> Iterator[tuple[int, np.ndarray]]:
        """One tensor of at least one dimension, some rows at a time: (first row of the region, rows).

        bfloat16 comes as its bits, in uint16, which Paddle takes for bfloat16.

        Args:
            name: of a tensor whose dtype is among `FLOATS`.
            limit: bytes that a piece may take on disk; a piece has at least one row.
            region: a range along the first axes, without steps; nothing else is read. Of a tensor with more
                than two dimensions, only the rows may be a part.
        """
        header = self.headers[name]
        count, *row = header.shape
        width = math.prod(row)
        first, end, _ = (region[0] if region else slice(None)).indices(count)
        left, right, _ = (region[1] if len(region) > 1 else slice(None)).indices(width)
        step = max(1, limit // max(1, (right - left) * header.item_size))
        for start in range(first, end, step):
            rows = min(step, end - start)
            if right - left == width:
                piece = self.numbers(name, start * width, rows * width).reshape(rows, *row)
            else:
                piece = self._columns(name, range(start, start + rows), left, right)
            yield start - first, piece

    def _columns(self, name: str, rows: range, left: int, right: int) -> np.ndarray:
        """Some columns of some rows of a matrix."""
        header = self.headers[name]
        width = header.shape[1]
        found = np.empty((len(rows), right - left), _NUMPY[header.dtype])
        with self.path.open("rb", buffering=0) as file:
            for row, target in zip(rows, found, strict=True):
                place = (row * width + left) * header.item_size
                os.preadv(file.fileno(), [target.data], self._start + self._offsets[name] + place)
        return found

    def numbers(self, name: str, first: int, count: int) -> np.ndarray:
        """Some numbers of a flattened tensor whose dtype is among `DTYPES`; bfloat16 comes as its bits.

        Args:
            first: index of the first one.
            count: how many.
        """
        header = self.headers[name]
        start = self._start + self._offsets[name] + first * header.item_size
        return np.fromfile(self.path, _NUMPY[header.dtype], count, offset=start)


def write_safetensors(
    path: Path,
    headers: Mapping[str, TensorHeader],
    read: Callable[[str], np.ndarray],
    metadata: Mapping[str, str],
) -> None:
    """Write a safetensors file atomically.

    Args:
        path: the file; what lies there is replaced when the new one is complete.
        headers: every tensor of the file by name.
        read: gives one tensor by name, in the dtype's bytes and the header's shape; called once for each.
        metadata: texts for the header, such as `{"format": "pt"}`.
    """
    text, offsets = encode_header(headers, metadata)
    with atomic_file(path) as file:
        file.write(text)
        for name in offsets:
            data = np.ascontiguousarray(read(name))
            if data.nbytes != headers[name].bytes:
                raise ValueError(f"{name}: got {data.nbytes} bytes, the header says {headers[name].bytes}")
            file.write(data.data.cast("B") if data.size else b"")


def encode_header(
    headers: Mapping[str, TensorHeader], metadata: Mapping[str, str]
) -> tuple[bytes, dict[str, int]]:
    """The beginning of a safetensors file, and where in the file each tensor begins, in the file's order.

    Args:
        headers: every tensor of the file by name.
        metadata: texts for the header, such as `{"format": "pt"}`.
    """
    names = sorted(headers, key=lambda name: (-headers[name].item_size, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offsets: dict[str, int] = {}
    end = 0
    for name in names:
        entry, offsets[name] = headers[name], end
        end += entry.bytes
        span = [offsets[name], end]
        header[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": span}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    text = len(text).to_bytes(8, "little") + text
    return text, {name: len(text) + offset for name, offset in offsets.items()}
