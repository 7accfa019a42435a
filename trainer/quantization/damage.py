"""Numbers that no tensor of a quantized layer can have, found before anything is computed with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from trainer.config.quantized_models import QuantizationScheme
from trainer.quantization.formats import limits
from trainer.quantization.packing import unpack_words


def damage(part: str, tensor: np.ndarray, scheme: QuantizationScheme, shape: tuple[int, int]) -> str | None:
    """What is wrong with the numbers of a tensor; None: nothing that can be told.

    Args:
        part: the last part of the tensor's name.
        tensor: in the shape that the layout says.
        scheme: of the layer.
        shape: outputs and inputs of the layer.
    """
    check = _CHECKS.get(part)
    return check(tensor, scheme, shape) if check else None


def zero_point_damage(tensor: np.ndarray, scheme: QuantizationScheme) -> str | None:
    """The same of a zero point beside weights or inputs that are symmetric and have none, so it is 0.

    Args:
        tensor: whole numbers, or 32-bit words of raised ones (see `trainer.quantization.packing`), of which
            the last may have room left.
        scheme: of the layer.
    """
    if tensor.dtype != np.int32:
        wrong = tensor != 0
        return _first(tensor, wrong, "0, as weights and inputs are symmetric") if wrong.any() else None
    words = tensor.reshape(-1, 1)
    numbers = unpack_words(words, scheme.bits, 32 // scheme.bits)
    wrong = (numbers != 0) & (numbers != limits(scheme.bits)[0])
    return _first(numbers, wrong, "0, as weights are symmetric") if wrong.any() else None


def _scales(tensor: np.ndarray, scheme: QuantizationScheme, shape: tuple[int, int]) -> str | None:
    wrong = ~np.isfinite(tensor.astype(np.float32))
    return _first(tensor, wrong, "finite scales") if wrong.any() else None


def _input_scale(tensor: np.ndarray, scheme: QuantizationScheme, shape: tuple[int, int]) -> str | None:
    value = tensor.astype(np.float32)
    wrong = ~(np.isfinite(value) & (value > 0))
    return _first(tensor, wrong, "a finite number above 0") if wrong.any() else None


def _integers(tensor: np.ndarray, scheme: QuantizationScheme, shape: tuple[int, int]) -> str | None:
    lowest, highest = limits(scheme.bits)
    wrong = (tensor < lowest) | (tensor > highest)
    return (
        _first(tensor, wrong, f"{lowest} to {highest}, which {scheme.bits} bits hold")
        if wrong.any()
        else None
    )


def _shape(tensor: np.ndarray, scheme: QuantizationScheme, shape: tuple[int, int]) -> str | None:
    found = tensor.reshape(-1).tolist()
    return None if found == list(shape) else f"got {found}, expected {list(shape)}"


def _zeros(tensor: np.ndarray, scheme: QuantizationScheme, shape: tuple[int, int]) -> str | None:
    half = 1 << (scheme.bits - 1)
    stored = unpack_words(tensor, scheme.bits, shape[0]).astype(np.int16) + half
    # The middle as it is, or less 1; see `unpack_gptq`.
    wrong = (stored != half - 1) & (stored != half)
    if not wrong.any():
        wrong = stored != stored.flat[0]
    msg = f"{half - 1} or {half} everywhere, the zero point of symmetric weights"
    return _first(stored, wrong, msg) if wrong.any() else None


def _groups(tensor: np.ndarray, scheme: QuantizationScheme, shape: tuple[int, int]) -> str | None:
    size = scheme.group_size if scheme.group_size > 0 else shape[1]
    highest = shape[1] // size - 1
    wrong = (tensor < 0) | (tensor > highest)
    return _first(tensor, wrong, f"groups from 0 to {highest}") if wrong.any() else None


def _first(tensor: np.ndarray, wrong: np.ndarray, expected: str) -> str:
    place = [int(index) for index in np.argwhere(wrong)[0]]
    count = int(wrong.sum())
    more = f" and {count - 1} more like it" if count > 1 else ""
    return f"got {tensor[tuple(place)]} at {place}{more}, expected {expected}"


_CHECKS: Mapping[str, Callable[[np.ndarray, QuantizationScheme, tuple[int, int]], str | None]] = {
    "weight": _integers,
    "weight_scale": _scales,
    "weight_shape": _shape,
    "input_scale": _input_scale,
    "scales": _scales,
    "qzeros": _zeros,
    "g_idx": _groups,
}
