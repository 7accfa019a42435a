"""The files of an adapter: its settings and its tensors, in Hugging Face PEFT's names and orientation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import paddle
from safetensors import SafetensorError

from trainer.config.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, AdapterSettings
from trainer.config.problems import DataError, Problem
from trainer.files import write_json
from trainer.models.safetensors_file import FLOATS, SafetensorsFile, TensorHeader, write_safetensors
from trainer.models.weights import WeightMap

_HINT = "Use the adapter that belongs to this base model and these settings."


def save_adapter(directory: Path, settings: AdapterSettings, tensors: Mapping[str, np.ndarray]) -> None:
    """Write an adapter; the settings come last, so a folder that has them is whole."""
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / ADAPTER_WEIGHTS, tensors)
    write_json(directory / ADAPTER_CONFIG, settings.to_dict())


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write float32 tensors to a safetensors file, whole or not at all."""
    headers = {name: TensorHeader("F32", array.shape) for name, array in tensors.items()}
    write_safetensors(path, headers, lambda name: tensors[name], {"format": "pt"})


def open_tensors(path: Path) -> SafetensorsFile:
    """The tensors of an adapter.

    Raises:
        DataError: there is no such file, or it is not a whole safetensors file of floats.
    """
    try:
        file = SafetensorsFile(path)
    except FileNotFoundError:
        hint = "Adapters in pickled files are not read: save them as safetensors."
        raise DataError(Problem((str(path),), "is not there", hint)) from None
    except (SafetensorError, OSError) as error:
        msg = f"is not a whole safetensors file ({error})"
        raise DataError(Problem((str(path),), msg, "Copy the adapter again.")) from None
    wrong = [name for name, header in file.headers.items() if header.dtype not in FLOATS]
    if wrong:
        raise DataError(
            [
                Problem((str(path), name), f"is {file.headers[name].dtype}, expected {', '.join(FLOATS)}")
                for name in wrong
            ]
        )
    return file


def check_shapes(file: SafetensorsFile, shapes: Mapping[str, list[int]]) -> None:
    """Compare the tensors of a file with those that an adapter has; nothing is read or allocated.

    Args:
        shapes: shapes on disk by name.

    Raises:
        DataError: tensors are missing, unknown or misshapen; all of them at once.
    """
    problems = []
    for name in sorted(shapes.keys() | file.headers.keys()):
        loc, shape = (str(file.path), name), shapes.get(name)
        if shape is None:
            problems.append(Problem(loc, "belongs to no part of this adapter", _HINT))
        elif name not in file.headers:
            problems.append(Problem(loc, f"is missing, expected shape {shape}", _HINT))
        elif (found := list(file.headers[name].shape)) != shape:
            problems.append(Problem(loc, f"got shape {found}, expected {shape}", _HINT))
    if problems:
        raise DataError(problems)


def fill_weights(weights: WeightMap, path: Path, shapes: Mapping[str, list[int]] | None = None) -> None:
    """Set parameters from the file that stores them; names and shapes must be exactly the same.

    Args:
        shapes: of all the tensors that the file must have; None: `weights` are all of them.

    Raises:
        DataError: as `check_shapes` says.
    """
    file = open_tensors(path)
    check_shapes(file, shapes or {name: weight.disk_shape for name, weight in weights.items()})
    for name, weight in weights.items():
        weight.fill(paddle.to_tensor(file.read(name)))


def disk_tensors(weights: WeightMap) -> dict[str, np.ndarray]:
    """The tensors as they are on disk, float32."""
    return {
        name: np.ascontiguousarray(weight.turned(weight.parameter).astype("float32").numpy())
        for name, weight in weights.items()
    }


def freeze(model: paddle.nn.Layer) -> None:
    """Compute no gradients for the present parameters of a model."""
    for parameter in model.parameters():
        parameter.stop_gradient = True
