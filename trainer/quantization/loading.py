"""Quantized layers from the files of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer.config.problems import DataError, Problem
from trainer.config.quantized_models import QuantizationScheme, StoredAs
from trainer.models.base import CausalLM
from trainer.models.placement import WHOLE
from trainer.models.registry import LinearLayer, linear_layers
from trainer.models.safetensors_file import FLOATS, SafetensorsFile, TensorHeader
from trainer.quantization import compressed_tensors, gptq_format
from trainer.quantization.damage import damage, zero_point_damage
from trainer.quantization.formats import Integers
from trainer.quantization.layers import QuantizedLinear
from trainer.quantization.model import put_layer

# What of a layer says that it is quantized.
_MARKS = {
    StoredAs.GPTQ: "qweight",
    StoredAs.PACK_QUANTIZED: "weight_packed",
    StoredAs.INT_QUANTIZED: "weight_scale",
}
# Zeros beside symmetric weights, which some writers store though they say nothing.
_SPARE = ("weight_zero_point", "input_zero_point")
_HINT = "Fetch the model again, or name another directory."


def load_quantized_layers(model: CausalLM, files: list[SafetensorsFile], content: Any) -> frozenset[str]:
    """Put the quantized layers of some files into a model; biases and all else are still to be loaded.

    Args:
        model: whole, without fused projections. Its parameters may be without memory (`paddle.LazyGuard`):
            those that stay get some here.
        files: all weight files of the model.
        content: its `quantization_config`.

    Returns:
        Names of the tensors that were read, or need not be.

    Raises:
        DataError: the kind of quantization is not supported, tensors are missing or misshapen, or they have
            numbers that they cannot have.
    """
    scheme = QuantizationScheme.read(content)
    if model.placement != WHOLE:
        msg = "the model is quantized, and its layers are not divided among processes"
        raise DataError(Problem(("model_name_or_path",), msg, "Use one process for it."))
    stored = {name: file for file in files for name in file.headers}
    problems: list[Problem] = []
    seen: set[str] = set()
    for linear in list(linear_layers(model)):
        if f"{linear.path}.{_MARKS[scheme.stored_as]}" not in stored:
            continue
        spare = [name for part in _SPARE if (name := f"{linear.path}.{part}") in stored]
        seen.update(spare)
        try:
            headers = _headers(linear, scheme)
        except ValueError as error:
            problems.append(Problem((str(files[0].path.parent), linear.path), str(error), _HINT))
            continue
        names = {part: f"{linear.path}.{part}" for part in headers}
        seen.update(names.values())
        wrong = [_misfit(names[part], header, stored) for part, header in headers.items()]
        if found := [problem for problem in wrong if problem]:
            problems += found
            continue
        tensors = {part: stored[name].read(name) for part, name in names.items()}
        if found := _broken(linear, names, tensors, spare, stored, scheme):
            problems += found
            continue
        try:
            put_layer(model, linear.path, _layer(linear, tensors, scheme))
        except ValueError as error:
            problems.append(Problem((str(files[0].path.parent), linear.path), str(error), _HINT))
    if problems:
        raise DataError(problems)
    if not seen:
        where = (str(files[0].path.parent), "quantization_config")
        msg = f"says {scheme.stored_as}, but no layer has a tensor {_MARKS[scheme.stored_as]}"
        raise DataError(Problem(where, msg, _HINT))
    for parameter in model.parameters():
        if not parameter._is_initialized():
            parameter.initialize()
    return frozenset(seen)


def _headers(linear: LinearLayer, scheme: QuantizationScheme) -> dict[str, TensorHeader]:
    inputs, outputs = linear.layer.weight.shape
    layout = gptq_format if scheme.stored_as is StoredAs.GPTQ else compressed_tensors
    return layout.headers(outputs, inputs, scheme)


def _misfit(name: str, expected: TensorHeader, stored: Mapping[str, SafetensorsFile]) -> Problem | None:
    if name not in stored:
        return Problem((name,), f"is missing, expected a tensor of shape {list(expected.shape)}", _HINT)
    header = stored[name].headers[name]
    scales = expected.dtype in FLOATS  # of which any precision will do
    if header.shape != expected.shape and not (scales and np.prod(header.shape) == np.prod(expected.shape)):
        msg = f"got shape {list(header.shape)}, expected {list(expected.shape)}"
        return Problem((str(stored[name].path), name), msg, _HINT)
    if header.dtype not in (FLOATS if scales else (expected.dtype,)):
        allowed = ", ".join(FLOATS) if scales else expected.dtype
        return Problem((str(stored[name].path), name), f"got {header.dtype}, expected {allowed}", _HINT)
    return None


def _broken(
    linear: LinearLayer,
    names: Mapping[str, str],
    tensors: Mapping[str, np.ndarray],
    spare: list[str],
    stored: Mapping[str, SafetensorsFile],
    scheme: QuantizationScheme,
) -> list[Problem]:
    """Numbers that cannot be."""
    inputs, outputs = linear.layer.weight.shape
    wrong = {names[part]: damage(part, tensor, scheme, (outputs, inputs)) for part, tensor in tensors.items()}
    wrong |= {name: zero_point_damage(stored[name].read(name), scheme) for name in spare}
    return [Problem((str(stored[name].path), name), msg, _HINT) for name, msg in wrong.items() if msg]


def _layer(
    linear: LinearLayer, tensors: Mapping[str, np.ndarray], scheme: QuantizationScheme
) -> QuantizedLinear:
    inputs, outputs = linear.layer.weight.shape
    integers: Integers
    input_scale = None
    if scheme.stored_as is StoredAs.GPTQ:
        integers = gptq_format.unpack_gptq(tensors, scheme)
    else:
        scales = tensors["weight_scale"].reshape(outputs, -1)
        integers = compressed_tensors.unpack_compressed({**tensors, "weight_scale": scales}, scheme, inputs)
        if scheme.activations:
            input_scale = float(tensors["input_scale"].reshape(-1)[0])
    return QuantizedLinear(integers, scheme, linear.layer.bias, input_scale)
