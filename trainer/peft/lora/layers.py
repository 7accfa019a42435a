"""The low-rank matrices of one linear layer, and the layers that may have some."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as functional
from paddle import Tensor, nn

from trainer.config.adapters import LoraSettings
from trainer.models.base import CausalLM
from trainer.models.linear import ZERO, AnyLinear, Fused
from trainer.models.registry import linear_layers


class LowRank(nn.Layer):
    """x → dropout(x) A B s on packed tokens; A is `[inputs, rank]`, B is `[rank, outputs]`, both float32.

    Attributes:
        enabled: whether it is added to the output of its layer.
    """

    def __init__(self, inputs: int, outputs: int, settings: LoraSettings) -> None:
        super().__init__()
        rank = settings.rank
        self.lora_A = self.create_parameter([inputs, rank], dtype="float32", default_initializer=ZERO)
        self.lora_B = self.create_parameter([rank, outputs], dtype="float32", default_initializer=ZERO)
        self.enabled = True
        self._scale = settings.scale
        self._dropout = settings.dropout

    def forward(self, x: Tensor) -> Tensor:
        if self._dropout > 0.0:
            x = functional.dropout(x, self._dropout, training=self.training)
        inner = paddle.matmul(x.astype(self.lora_A.dtype), self.lora_A) * self._scale
        return paddle.matmul(inner, self.lora_B)

    def draw(self, seed: int, name: str) -> None:
        """A from U(-1/sqrt(inputs), 1/sqrt(inputs)), which is Kaiming's with a = sqrt(5); B = 0.

        The numbers depend on the seed and the name alone.
        """
        inputs, rank = self.lora_A.shape
        bound = 1.0 / math.sqrt(inputs)
        generator = np.random.default_rng((seed, zlib.crc32(name.encode())))
        drawn = generator.uniform(-bound, bound, (inputs, rank)).astype(np.float32)
        paddle.assign(paddle.to_tensor(drawn), self.lora_A)


@dataclass(frozen=True)
class Target:
    """A linear layer of the files: its path there, and the module that computes it.

    Attributes:
        part: its name inside a fused module; None: the module is that layer alone.
    """

    path: str
    layer: AnyLinear
    part: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def sizes(self) -> tuple[int, int]:
        """Inputs and outputs."""
        inputs, outputs = self.layer.weight.shape
        if self.part is not None and isinstance(self.layer, Fused):
            outputs = self.layer.parts[self.part]
        return inputs, outputs


def targets(model: CausalLM) -> Iterator[Target]:
    """Every linear layer of the decoder layers, as the files name them."""
    for found in linear_layers(model):
        if isinstance(found.layer, Fused):
            place = found.path.rpartition(".")[0]
            for part in found.layer.parts:
                yield Target(f"{place}.{part}", found.layer, part)
        else:
            yield Target(found.path, found.layer)


def attach(target: Target, low_rank: LowRank) -> None:
    """Add the output of `low_rank` to that of its layer."""
    name = f"lora_{target.part}" if target.part else "lora"
    target.layer.add_sublayer(name, low_rank)
    hook: Any = _hook(target, low_rank)
    target.layer.register_forward_post_hook(hook)


def _hook(target: Target, low_rank: LowRank) -> Callable[[Any, tuple[Tensor, ...], Any], Any]:
    def add(layer: nn.Layer, inputs: tuple[Tensor, ...], output: Any) -> Any:
        if not low_rank.enabled:
            return output
        if target.part is None or not isinstance(layer, Fused):
            return output + low_rank(inputs[0]).astype(output.dtype)
        parts = list(output)
        place = list(layer.parts).index(target.part)
        parts[place] = parts[place] + low_rank(inputs[0]).astype(parts[place].dtype)
        return tuple(parts)

    return add
