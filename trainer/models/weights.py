"""Weights between a model and a directory in Hugging Face's layout.

Linear weights are `[out, in]` on disk and `[in, out]` in a Paddle Linear. A tied head is not stored.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paddle
from paddle import Tensor
from safetensors import SafetensorError

from trainer.config.problems import DataError, Problem
from trainer.files import write_json
from trainer.models.safetensors_file import (
    FLOATS,
    SafetensorsFile,
    TensorHeader,
    write_safetensors,
)

if TYPE_CHECKING:
    from trainer.models.base import CausalLM

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAX_SHARD_BYTES = 5 * 10**9

_WEIGHT_FILE = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
# Constants that some writers store beside the weights.
_BUFFER = re.compile(r"(^|\.)(rotary_emb\.(inv_freq|cos_cached|sin_cached)|attn\.(bias|masked_bias))$")
_DISK_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True)
class Weight:
    """One parameter and its place on disk.

    Attributes:
        name: Hugging Face name.
        parameter: the Paddle parameter.
        transposed: whether the matrix on disk is the transpose of the parameter.
    """

    name: str
    parameter: Tensor
    transposed: bool

    @property
    def disk_shape(self) -> list[int]:
        """Shape of the tensor on disk."""
        shape = list(self.parameter.shape)
        return shape[::-1] if self.transposed else shape

    def turned(self, tensor: Tensor) -> Tensor:
        """Between the orientation of the parameter and that on disk; works both ways, for moments too."""
        return tensor.detach().t() if self.transposed else tensor.detach()

    @paddle.no_grad()
    def fill(self, tensor: Tensor) -> None:
        """Set the parameter from a tensor as it is on disk; its dtype is converted."""
        paddle.assign(self.turned(tensor.astype(self.parameter.dtype)), self.parameter)


WeightMap = Mapping[str, Weight]


def load_weights(model: "CausalLM", directory: Path) -> None:
    """Fill a model's parameters from a directory, reading each tensor once and holding one at a time.

    Names may lack the `model.` prefix; float16, bfloat16, float32 and float64 are converted to the
    parameter's dtype; a stored copy of a tied head and rotary buffers are passed over.

    Raises:
        DataError: tensors are missing, misshapen or unknown, or files cannot be read; all problems at once.
    """
    weights = model.parameter_names()
    tied = model.config.tie_word_embeddings
    files = _open_all(weight_files(directory))
    filled: set[str] = set()
    problems = [problem for file in files for problem in _load_file(file, weights, tied, filled)]
    for name in weights.keys() - filled:
        expected = f"expected a tensor of shape {weights[name].disk_shape}"
        problems.append(_problem(directory, name, f"is missing, {expected}"))
    if problems:
        raise DataError(sorted(problems, key=lambda problem: problem.loc[-1]))


def weight_files(directory: Path) -> list[Path]:
    """The weight files of a model directory: the shards its index names, or its single file.

    Raises:
        DataError: there are none, the index cannot be read, or a shard is missing.
    """
    index = directory / INDEX_FILE
    if not index.is_file():
        single = directory / SINGLE_FILE
        if single.is_file():
            return [single]
        raise DataError(_file_problem(directory, f"has neither {SINGLE_FILE} nor {INDEX_FILE}"))
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(_file_problem(index, f"is not an index of weight files ({error!r})")) from error
    outside = [name for name in names if Path(name).name != name]
    missing = [name for name in names if name not in outside and not (directory / name).is_file()]
    problems = [_file_problem(index, f"names {name!r}, which is not a file name") for name in outside]
    problems += [_file_problem(index, f"names {name}, which is not there") for name in missing]
    if problems:
        raise DataError(problems)
    return [directory / name for name in names]


def save_weights(model: "CausalLM", directory: Path, max_shard_bytes: int = MAX_SHARD_BYTES) -> None:
    """Write a model's weights: one file, or shards and an index when they are more than `max_shard_bytes`.

    A tensor larger than the limit has a shard of its own. Every file appears whole or not at all, and the
    index last. Weight files of an earlier save go when all is written, their index first.
    """
    weights = model.parameter_names()
    headers = {name: _header(weight) for name, weight in weights.items()}
    shards = _shards(headers, max_shard_bytes)

    def read(name: str) -> Any:
        weight = weights[name]
        return weight.turned(weight.parameter).numpy()

    for file, names in shards.items():
        write_safetensors(directory / file, {name: headers[name] for name in names}, read, {"format": "pt"})
    written = set(shards)
    if len(shards) > 1:
        total = sum(header.bytes for header in headers.values())
        places = {name: file for file, names in shards.items() for name in names}
        content = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        write_json(directory / INDEX_FILE, content)
        written.add(INDEX_FILE)
    stale = [path for path in directory.iterdir() if _WEIGHT_FILE.fullmatch(path.name)]
    for path in sorted(stale, key=lambda path: path.name != INDEX_FILE):
        if path.name not in written:
            path.unlink()


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


def _load_file(file: SafetensorsFile, weights: WeightMap, tied: bool, filled: set[str]) -> list[Problem]:
    """Fill the parameters whose tensors lie in one file and say what is wrong with the others."""
    problems = []
    for stored, header in file.headers.items():
        name = stored if stored in weights else f"model.{stored}"
        weight = weights.get(name)
        if weight is None:
            if not _BUFFER.search(stored) and not (tied and stored == "lm_head.weight"):
                problems.append(_problem(file.path, stored, "is not a tensor of this model"))
            continue
        wrong = "is stored twice" if name in filled else _mismatch(header, weight)
        filled.add(name)
        if wrong:
            problems.append(_problem(file.path, name, wrong))
        else:
            weight.fill(paddle.to_tensor(file.read(stored)))
    return problems


def _mismatch(header: TensorHeader, weight: Weight) -> str | None:
    if list(header.shape) != weight.disk_shape:
        return f"got shape {list(header.shape)}, expected {weight.disk_shape}"
    if header.dtype not in FLOATS:
        return f"got {header.dtype}, expected one of {', '.join(FLOATS)}"
    return None


def _header(weight: Weight) -> TensorHeader:
    dtype = _DISK_DTYPES[str(weight.parameter.dtype).removeprefix("paddle.")]
    return TensorHeader(dtype, tuple(weight.disk_shape))


def _shards(headers: Mapping[str, TensorHeader], limit: int) -> dict[str, list[str]]:
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


def _problem(path: Path, tensor: str, msg: str) -> Problem:
    return Problem((str(path), tensor), msg, "Use the weights that belong to this config.json.")


def _file_problem(path: Path, msg: str) -> Problem:
    return Problem((str(path),), msg, "Fetch the model again, or name another directory.")
