"""Which linear layers of a decoder layer share their input, and what is in front of it.

Dividing input channels by factors and multiplying the same rows of the weights leaves a model as it was, if
what gives the input takes the division up exactly: the norm in front, or a linear layer from whose outputs
the input is made channel by channel. Attention mixes tokens and not channels, and its weights sum to one, so
factors and shifts of its outputs go into the projection of the values; channels of query heads that share a
value head have one factor. In a gated MLP the up projection takes up factors. Behind a plain GELU nothing
does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from trainer.models import CausalLM
from trainer.models.gemma.modeling import GemmaRMSNorm
from trainer.models.layers import LayerNorm
from trainer.models.parts import Role
from trainer.models.registry import LinearLayer
from trainer.quantization.calibration import Block
from trainer.quantization.formats import row_blocks

# Modules of a decoder layer, by the same name in every family.
_ATTENTION_NORM = "input_layernorm"
_MLP_NORM = "post_attention_layernorm"

_ATTENTION_INPUT = (Role.QUERY, Role.KEY, Role.VALUE, Role.QUERY_KEY_VALUE)
_MLP_INPUT = (Role.GATE, Role.UP)


class Source(ABC):
    """What gives an input, by channels of its own.

    Attributes:
        owners: int64 `[in]`, the source's channel that each input channel is; several may be the same one.
        channels: how many channels there are.
        is_norm: whether it is a norm.
    """

    def __init__(self, owners: np.ndarray, is_norm: bool) -> None:
        self.owners = owners
        self.channels = int(owners.max()) + 1
        self.is_norm = is_norm

    @property
    @abstractmethod
    def can_shift(self) -> bool:
        """Whether there is a bias."""

    @abstractmethod
    def divide(self, factors: np.ndarray) -> None:
        """Divide each channel by its factor, `[channels]`."""

    @abstractmethod
    def subtract(self, shifts: np.ndarray) -> None:
        """Subtract from each channel its shift, `[channels]`; only where `can_shift`."""

    def largest(self, values: np.ndarray) -> np.ndarray:
        """The largest value among the input channels of each of the source's, `[..., in]`."""
        found = np.full((self.channels, *values.shape[:-1]), -np.inf, values.dtype)
        np.maximum.at(found, self.owners, np.moveaxis(values, -1, 0))
        return np.moveaxis(found, 0, -1)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """The mean over the input channels of each of the source's, from `[in]`."""
        return np.bincount(self.owners, values, self.channels) / np.bincount(self.owners)


class _Norm(Source):
    """A norm with a scale for each channel."""

    def __init__(self, norm: LayerNorm | GemmaRMSNorm) -> None:
        weight: Any = norm.weight
        super().__init__(np.arange(weight.shape[0]), is_norm=True)
        self._weight: Tensor = weight
        self._bias: Tensor | None = getattr(norm, "bias", None)
        # Gemma's scale is 1 + weight.
        self._offset = 1.0 if isinstance(norm, GemmaRMSNorm) else 0.0

    @property
    def can_shift(self) -> bool:
        return self._bias is not None

    def divide(self, factors: np.ndarray) -> None:
        _set(self._weight, (_wide(self._weight) + self._offset) / factors - self._offset)
        if self._bias is not None:
            _set(self._bias, _wide(self._bias) / factors)

    def subtract(self, shifts: np.ndarray) -> None:
        if self._bias is None:
            raise ValueError("got a shift for a norm without a bias")
        _set(self._bias, _wide(self._bias) - shifts)


class _Outputs(Source):
    """Outputs of a linear layer.

    Args:
        columns: int64 `[channels]`, the layer's output that each channel is.
        owners: see `Source`.
    """

    def __init__(self, layer: LinearLayer, columns: np.ndarray, owners: np.ndarray) -> None:
        super().__init__(owners, is_norm=False)
        self._weight: Tensor = layer.layer.weight
        self._bias: Tensor | None = layer.layer.bias
        self._columns = columns

    @property
    def can_shift(self) -> bool:
        return self._bias is not None

    def divide(self, factors: np.ndarray) -> None:
        inverse = np.ones(self._weight.shape[1])
        inverse[self._columns] = 1.0 / factors
        _scale(self._weight, inverse[np.newaxis])
        if self._bias is not None:
            _set(self._bias, _wide(self._bias) * inverse)

    def subtract(self, shifts: np.ndarray) -> None:
        if self._bias is None:
            raise ValueError("got a shift for a layer without a bias")
        bias = _wide(self._bias)
        bias[self._columns] -= shifts
        _set(self._bias, bias)


@dataclass(frozen=True)
class InputGroup:
    """Linear layers with the same input.

    Attributes:
        linears: the layers.
        source: what gives the input; None where nothing takes up factors.
        reason: why there is no source; empty where there is one.
    """

    linears: tuple[LinearLayer, ...]
    source: Source | None
    reason: str = ""

    @property
    def path(self) -> str:
        """The path of the first layer, which stands for the group."""
        return self.linears[0].path

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all layers."""
        return tuple(layer.path for layer in self.linears)

    @property
    def shift_reason(self) -> str:
        """Why the input cannot be shifted; empty where it can."""
        if self.source is None:
            return self.reason
        if not self.source.can_shift:
            return "what is in front has no bias"
        if any(layer.layer.bias is None for layer in self.linears):
            return "the layer has no bias"
        return ""

    def weight_absmax(self) -> np.ndarray:
        """The largest absolute weight of each input channel over all layers, float32 `[in]`."""
        largest = [_absmax(layer.layer.weight).numpy() for layer in self.linears]
        return np.max(largest, axis=0)

    def divide(self, factors: np.ndarray) -> None:
        """Divide the input by `factors [channels]` and multiply the weights; the model stays as it was.

        Raises:
            ValueError: there is no source.
        """
        self._source().divide(factors)
        for layer in self.linears:
            _scale(layer.layer.weight, self.spread(factors)[:, np.newaxis])

    def subtract(self, shifts: np.ndarray) -> None:
        """Subtract `shifts [channels]` from the input and add their products to the biases.

        Raises:
            ValueError: `shift_reason` is not empty.
        """
        if self.shift_reason:
            raise ValueError(f"{self.path}: {self.shift_reason}")
        self._source().subtract(shifts)
        for layer in self.linears:
            bias: Tensor | None = layer.layer.bias
            if bias is not None:
                _set(bias, _wide(bias) + self.spread(shifts) @ _wide(layer.layer.weight))

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Values `[channels]` of the source's channels as those of input channels, `[in]`."""
        return values[self._source().owners]

    def _source(self) -> Source:
        if self.source is None:
            raise ValueError(f"{self.path}: {self.reason}")
        return self.source


def input_groups(model: CausalLM, block: Block) -> tuple[InputGroup, ...]:
    """The linear layers of a decoder layer by their inputs, in order; each is in one group."""
    by_role = {layer.role: layer for layer in block.linears}
    layer = dict(model.named_sublayers())[block.path]
    groups = [
        _behind_norm(model, layer, _ATTENTION_NORM, _of(by_role, _ATTENTION_INPUT)),
        _attention_output(model, by_role),
        _behind_norm(model, layer, _MLP_NORM, _of(by_role, _MLP_INPUT)),
        _down(by_role),
    ]
    return tuple(group for group in groups if group.linears)


def _of(by_role: Mapping[Role, LinearLayer], roles: Sequence[Role]) -> tuple[LinearLayer, ...]:
    return tuple(by_role[role] for role in roles if role in by_role)


def _behind_norm(model: CausalLM, layer: nn.Layer, name: str, linears: tuple[LinearLayer, ...]) -> InputGroup:
    norm = getattr(layer, name, None)
    if not isinstance(norm, LayerNorm | GemmaRMSNorm):
        return InputGroup(linears, None, "there is no norm in front")
    if getattr(model.config, "apply_residual_connection_post_layernorm", False):
        return InputGroup(linears, None, "the residual comes from the same norm")
    return InputGroup(linears, _Norm(norm))


def _attention_output(model: CausalLM, by_role: Mapping[Role, LinearLayer]) -> InputGroup:
    linears = _of(by_role, (Role.ATTENTION_OUTPUT,))
    heads, kv_heads = model.config.num_attention_heads, model.config.num_key_value_heads
    width = model.config.head_dim
    of_head = np.arange(width)
    owners = (np.arange(heads) * kv_heads // heads)[:, np.newaxis] * width + of_head
    if Role.VALUE in by_role:
        values, columns = by_role[Role.VALUE], np.arange(kv_heads * width)
    elif Role.QUERY_KEY_VALUE in by_role:
        # Head by head query, key and value.
        values = by_role[Role.QUERY_KEY_VALUE]
        columns = ((3 * np.arange(heads) + 2)[:, np.newaxis] * width + of_head).reshape(-1)
    else:
        return InputGroup(linears, None, "there is no projection of values in front")
    return InputGroup(linears, _Outputs(values, columns, owners.reshape(-1)))


def _down(by_role: Mapping[Role, LinearLayer]) -> InputGroup:
    linears = _of(by_role, (Role.DOWN,))
    if Role.GATE not in by_role or Role.UP not in by_role:
        return InputGroup(linears, None, "an activation function is in front")
    up = by_role[Role.UP]
    channels = np.arange(up.layer.weight.shape[1])
    return InputGroup(linears, _Outputs(up, channels, channels))


def _wide(parameter: Tensor) -> np.ndarray:
    return parameter.astype("float32").numpy().astype(np.float64)


def _set(parameter: Tensor, values: np.ndarray) -> None:
    parameter.set_value(paddle.to_tensor(values.astype(np.float32)).astype(parameter.dtype))


@paddle.no_grad()
def _absmax(weight: Tensor) -> Tensor:
    """Of each row."""
    blocks = row_blocks(weight.shape[0])
    return paddle.concat([weight[start:stop].astype("float32").abs().max(axis=1) for start, stop in blocks])


@paddle.no_grad()
def _scale(weight: Tensor, factors: np.ndarray) -> None:
    """Multiply by factors `[in, 1]` or `[1, out]`."""
    factor = paddle.to_tensor(factors.astype(np.float32))
    for start, stop in row_blocks(weight.shape[0]):
        rows = factor if factor.shape[0] == 1 else factor[start:stop]
        weight[start:stop] = (weight[start:stop].astype("float32") * rows).astype(weight.dtype)
