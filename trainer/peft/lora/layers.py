"""The low-rank matrices of one linear layer, and the layers that may have some."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as functional
from paddle import Tensor, nn

from trainer.config.adapters import LoraSettings
from trainer.models.base import CausalLM
from trainer.models.linear import ZERO, AnyLinear, Cut, Fused
from trainer.models.placement import TensorRank
from trainer.models.registry import linear_layers
from trainer.models.sequence import sees_own_tokens
from trainer.models.weights import Weight, shard_of
from trainer.ops.tensor_group import copied, own_random, shared_rows, summed, summed_rows

# PEFT puts this before the path of a layer, and these after it.
PATH_PREFIX = "base_model.model."
MATRIX_A, MATRIX_B = ".lora_A.weight", ".lora_B.weight"


class LowRank(nn.Layer):
    """x → dropout(x) A B s on packed tokens; A is `[inputs, rank]`, B is `[rank, outputs]`, both float32.

    Beside a split layer the matrix is split that has the split side: B beside a column layer, A beside a row
    layer. Every rank has the other one and, between the two, x A of all ranks' inputs.

    Attributes:
        enabled: whether it is added to the output of its layer.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        settings: LoraSettings,
        cut: Cut = Cut.NONE,
        tensor: TensorRank | None = None,
    ) -> None:
        """Matrices for a layer that has `inputs` and `outputs` here.

        Args:
            cut: how the layer is split over the ranks of a tensor group.
            tensor: the rank.
        """
        super().__init__()
        rank = settings.rank
        self.lora_A = self.create_parameter([inputs, rank], dtype="float32", default_initializer=ZERO)
        self.lora_B = self.create_parameter([rank, outputs], dtype="float32", default_initializer=ZERO)
        self.enabled = True
        self._scale = settings.scale
        self._dropout = settings.dropout
        self._cut, self._tensor = cut, tensor
        if cut is Cut.COLUMNS:
            self.lora_B.is_distributed, self.lora_B.split_axis = True, 1
        elif cut is Cut.ROWS:
            self.lora_A.is_distributed, self.lora_A.split_axis = True, 0
        sees_own_tokens([matrix for matrix in self.parameters() if not matrix.is_distributed], tensor)

    def forward(self, x: Tensor) -> Tensor:
        if self._dropout > 0.0:
            with self._random():
                x = functional.dropout(x, self._dropout, training=self.training)
        inner = paddle.matmul(x.astype(self.lora_A.dtype), self.lora_A) * self._scale
        return paddle.matmul(self._between(inner), self.lora_B)

    def weights(self, path: str) -> Iterator[Weight]:
        """A and B by their names on disk, beside the layer of this path."""
        for suffix, parameter in ((MATRIX_A, self.lora_A), (MATRIX_B, self.lora_B)):
            weight = Weight(f"{PATH_PREFIX}{path}{suffix}", parameter, transposed=True)
            yield replace(weight, shard=shard_of(weight, self._tensor))

    def draw(self, seed: int, path: str) -> None:
        """A from U(-1/sqrt(inputs), 1/sqrt(inputs)), which is Kaiming's with a = sqrt(5); B = 0.

        The numbers depend on the seed and the path alone: whole matrices are drawn.
        """
        matrix, _ = self.weights(path)
        rank, inputs = matrix.disk_shape
        bound = 1.0 / math.sqrt(inputs)
        generator = np.random.default_rng((seed, zlib.crc32(path.encode())))
        drawn = generator.uniform(-bound, bound, (inputs, rank)).astype(np.float32)
        matrix.fill(paddle.to_tensor(np.ascontiguousarray(drawn.T)))

    def _random(self) -> AbstractContextManager[None]:
        """For the mask of what a rank alone has."""
        tensor = self._tensor
        own = tensor is not None and (tensor.sequence or self._cut is Cut.ROWS)
        return own_random() if own else nullcontext()

    def _between(self, inner: Tensor) -> Tensor:
        """x A for the tokens and with the inputs that B needs."""
        tensor = self._tensor
        if tensor is None or self._cut is Cut.NONE:
            return inner
        if self._cut is Cut.COLUMNS:
            return shared_rows(inner) if tensor.sequence else copied(inner, tensor.group)
        return summed_rows(inner) if tensor.sequence else summed(inner, tensor.group)


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
        """Inputs and outputs that are here."""
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
