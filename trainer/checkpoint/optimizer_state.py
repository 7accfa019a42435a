"""AdamW's state as named tensors that line up with the weights on disk.

A parameter that is stored as ``<name>`` has ``<name>/moment1`` and ``<name>/moment2`` (fp32, in the
orientation of the stored weight), ``<name>/beta1_power`` and ``<name>/beta2_power`` (shape [1]) and, in O2
mixed precision, ``<name>/master`` (the fp32 copy of the weight). Names follow the parameter and not the
process that held it, so the state can be read under any layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from trainer.config.problems import DataError

if TYPE_CHECKING:
    import paddle

    from trainer.models.base import CausalLM
    from trainer.models.weights import Weight

OPTIMIZER_FILE = "optimizer.safetensors"

_MASTER = "master"
# Our names for what Paddle calls its accumulators.
_ACCUMULATORS = {
    "moment1": "moment1",
    "moment2": "moment2",
    "beta1_power": "beta1_pow_acc",
    "beta2_power": "beta2_pow_acc",
}


def save_optimizer(model: CausalLM, optimizer: paddle.optimizer.AdamW, directory: Path) -> None:
    """Write the optimizer's state to ``optimizer.safetensors``; before the first step it is empty."""
    state: dict[str, Any] = dict(optimizer.state_dict())
    masters = state.pop("master_weights", {})
    # Paddle appends a counter to each accumulator's name.
    accumulators = {name.rpartition("_")[0]: tensor for name, tensor in state.items()}
    tensors: dict[str, np.ndarray] = {}
    for name, weight in model.trained_weights().items():
        owner = _owner(weight, masters)
        found = {kind: accumulators.get(f"{owner}_{theirs}") for kind, theirs in _ACCUMULATORS.items()}
        found[_MASTER] = masters.get(weight.parameter.name)
        for kind, tensor in found.items():
            if tensor is not None:
                turned = tensor if _is_power(kind) else weight.turned(tensor)
                tensors[f"{name}/{kind}"] = np.ascontiguousarray(turned.astype("float32").numpy())
    save_file(tensors, directory / OPTIMIZER_FILE, metadata={"format": "np"})


def load_optimizer(model: CausalLM, optimizer: paddle.optimizer.AdamW, directory: Path) -> None:
    """Fill a fresh optimizer with the state that `save_optimizer` wrote.

    Raises:
        DataError: the file lacks a parameter of the model, or has another shape for it.
    """
    path = directory / OPTIMIZER_FILE
    state: dict[str, Any] = {}
    masters: dict[str, paddle.Tensor] = {}
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        if not names:
            return
        for name, weight in model.trained_weights().items():
            if weight.parameter.stop_gradient:
                continue
            if f"{name}/{_MASTER}" in names:
                owner = weight.parameter.name
                masters[owner] = _join(masters.get(owner), weight, _read(file, path, name, _MASTER, weight))
                masters[owner].name = _owner(weight, masters)
            owner = _owner(weight, masters)
            for kind, theirs in _ACCUMULATORS.items():
                key, part = f"{owner}_{theirs}_0", _read(file, path, name, kind, weight)
                state[key] = part if _is_power(kind) else _join(state.get(key), weight, part)
    if masters:
        state["master_weights"] = masters
    optimizer.set_state_dict(state)


def _owner(weight: Weight, masters: Mapping[str, paddle.Tensor]) -> str:
    """Name of the tensor that accumulators belong to: the parameter, or its fp32 copy if there is one."""
    name = weight.parameter.name
    return f"{name}_fp32_master_0" if name in masters else name


def _is_power(kind: str) -> bool:
    return kind.startswith("beta")


def _join(whole: paddle.Tensor | None, weight: Weight, part: paddle.Tensor) -> paddle.Tensor:
    """Put what lies on disk into its place in the parameter's moment, which is made for the first part."""
    import paddle

    if whole is None:
        whole = paddle.zeros(weight.parameter.shape, "float32")
    weight.put(part, whole)
    return whole


def _read(file: Any, path: Path, name: str, kind: str, weight: Weight) -> paddle.Tensor:
    import paddle

    key = f"{name}/{kind}"
    try:
        array = file.get_tensor(key)
    except SafetensorError:
        raise DataError(f"{path} has no {key}, so it belongs to another model") from None
    expected = [1] if _is_power(kind) else weight.disk_shape
    if list(array.shape) != expected:
        raise DataError(f"{path}: {key} has shape {list(array.shape)}, the model expects {expected}")
    return paddle.to_tensor(array)
