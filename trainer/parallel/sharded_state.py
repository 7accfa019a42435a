"""What of the weights and of AdamW's state a process holds, and which process answers for it.

A parameter, or its state, is here as a whole, as a range of it (of the flattened parameter), or not at all.
Several processes may hold the same; one of them saves it. Which one depends on the name on disk, so that the
work is shared out.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import paddle
from paddle import Tensor

from trainer.models.host_memory import writable
from trainer.models.weights import Weight, WeightMap

if TYPE_CHECKING:
    from trainer.parallel.layout import Layout

Kind = Literal["weight", "moment1", "moment2", "master", "beta1_power", "beta2_power"]

#: Range `[start, stop)` of a flattened parameter.
Span = tuple[int, int]

MASTER = "master"
#: What Paddle calls the tensors of AdamW's state.
_ACCUMULATORS: dict[Kind, str] = {
    "moment1": "moment1",
    "moment2": "moment2",
    "beta1_power": "beta1_pow_acc",
    "beta2_power": "beta2_pow_acc",
}


@dataclass(frozen=True)
class Held:
    """A tensor of a weight, or of its optimizer state, that this process holds.

    Attributes:
        weight: the tensor on disk that it belongs to.
        kind: "weight" itself, or what of the optimizer.
        tensor: shaped like the parameter (of which `weight` may be only some columns), or flat where there is
            a span; `[1]` for the powers.
        span: the range of the flattened parameter that is here; None: all of it.
        saved_here: whether this process is the one that saves it.
    """

    weight: Weight
    kind: Kind
    tensor: Tensor
    span: Span | None
    saved_here: bool

    @property
    def is_power(self) -> bool:
        """Whether it is one of AdamW's two scalars."""
        return self.kind.startswith("beta")

    @paddle.no_grad()
    def put(self, array: np.ndarray) -> None:
        """Set the tensor from an array shaped like it, but without the filling behind a span."""
        host = writable(self.tensor)
        if host is not None:
            flat = host.reshape(-1)
            flat[: array.size] = array.reshape(-1)
            flat[array.size :] = 0
            return
        value = paddle.to_tensor(array).astype(self.tensor.dtype).reshape([-1])
        missing = self.tensor.size - value.size
        if missing:
            value = paddle.concat([value, paddle.zeros([missing], value.dtype)])
        paddle.assign(value.reshape(self.tensor.shape), self.tensor)


@dataclass(frozen=True)
class Part:
    """A parameter as an optimizer sees it in this process.

    Attributes:
        parameter: of the model.
        kept: what the optimizer changes: the parameter, or a flat part of it that bears its name.
        span: the range of the flattened parameter that `kept` is; None: all of it.
        everywhere: whether all processes of the sharding group have the same.
    """

    parameter: Tensor
    kept: Tensor
    span: Span | None = None
    everywhere: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the parameter is here: its slice is all filling."""
        return self.span is not None and self.span[0] == self.span[1]


class Copies:
    """How many processes hold the same as this one, and the how-many-th of them this is.

    Args:
        layout: the place of this process.
        tied: names of the parameters that the first and the last stage of a pipeline both have.
    """

    def __init__(self, layout: Layout, tied: Collection[str] = ()) -> None:
        self._layout = layout
        self._tied = frozenset(tied)

    def count(self, parameter: Tensor, everywhere: bool) -> int:
        """Processes with the same part of a parameter.

        Args:
            everywhere: whether all of a sharding group have it.
        """
        count = 1
        for _, size in self._places(parameter, everywhere):
            count *= size
        return count

    def is_responsible(self, parameter: Tensor, everywhere: bool, name: str) -> bool:
        """Whether this is the one among them that answers for `name`."""
        place, count = 0, 1
        for number, size in self._places(parameter, everywhere):
            place, count = place * size + number, count * size
        return zlib.crc32(name.encode()) % count == place

    def is_first_slice(self, parameter: Tensor) -> bool:
        """Whether of the slices of a parameter that is split by tensor parallelism, this is the first."""
        return self._layout.tensor_rank == 0 or not parameter.is_distributed

    def _places(self, parameter: Tensor, everywhere: bool) -> Iterator[tuple[int, int]]:
        """This process's number in every group that holds the same, and the size of the group."""
        layout, topology = self._layout, self._layout.topology
        yield layout.dp_rank, topology.data
        if everywhere:
            yield layout.sharding_rank, topology.sharding
        if not parameter.is_distributed:
            yield layout.tensor_rank, topology.tensor
        if parameter.name in self._tied and topology.pipeline > 1:
            yield int(not layout.is_first_stage), 2


def held_weights(weights: WeightMap, parts: Iterable[Part], copies: Copies) -> Iterator[Held]:
    """What is here of the weights themselves.

    Args:
        parts: where sharding leaves weights cut up; other weights are whole in every process.
    """
    cut = {part.parameter.name: part for part in parts if part.span is not None}
    for name, weight in weights.items():
        part = cut.get(weight.parameter.name, Part(weight.parameter, weight.parameter, everywhere=True))
        if part.is_empty:
            continue
        mine = copies.is_responsible(part.parameter, part.everywhere, name)
        yield Held(weight, "weight", part.kept, part.span, mine)


def held_state(optimizer: Any, weights: WeightMap, parts: Iterable[Part], copies: Copies) -> Iterator[Held]:
    """What is here of the state of `optimizer`, an AdamW; nothing before its first step."""
    by_name = {part.parameter.name: part for part in parts}
    for name, weight in weights.items():
        part = by_name.get(weight.parameter.name)
        if part is None or part.is_empty:
            continue
        mine = copies.is_responsible(part.parameter, part.everywhere, name)
        first = mine and copies.is_first_slice(part.parameter) and (part.span is None or part.span[0] == 0)
        for kind, tensor in _tensors(optimizer, part.kept):
            held = Held(weight, kind, tensor, part.span, mine)
            yield Held(weight, kind, tensor, part.span, first) if held.is_power else held


def create_state(optimizer: Any, parts: Iterable[Part]) -> None:
    """Make the state that an AdamW would make at its first step."""
    block = paddle.static.default_main_program().global_block()
    optimizer._create_accumulators(block, [part.kept for part in parts])


def _tensors(optimizer: Any, kept: Tensor) -> Iterator[tuple[Kind, Tensor]]:
    master = optimizer._master_weights.get(kept.name)
    owner = kept.name if master is None else master.name
    accumulators = optimizer._accumulators
    found: dict[Kind, Any] = {kind: accumulators[theirs].get(owner) for kind, theirs in _ACCUMULATORS.items()}
    if found["moment1"] is None:
        return
    yield from found.items()
    if master is not None:
        yield "master", master
