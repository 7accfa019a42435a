"""A model run layer by layer over calibration data, so that each layer is seen and changed in turn.

Held at any time: the hidden states of all batches before the present decoder layer, and what this layer works
with. Each layer runs twice: once to show the inputs of its linear layers, and once more, as it is by then, to
give the inputs of the next layer. So later layers see what the changed layers before them give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import paddle
from paddle import Tensor

from trainer.models import CausalLM, linear_layers
from trainer.models.base import Stage
from trainer.models.linear import Fused
from trainer.models.passes import Pass
from trainer.models.placement import WHOLE
from trainer.models.registry import LinearLayer
from trainer.ops.packing import Packing
from trainer.quantization.pulse import Tick, no_tick

#: Told of a linear layer's path, its input `[tokens, in]` and the number of the batch, as the layer runs.
Visit = Callable[[str, Tensor, int], None]


class Block:
    """One decoder layer on its turn.

    Attributes:
        index: its number among the decoder layers, from 0.
        path: of the module in the model.
        linears: its linear layers, in order; not those that are quantized.
    """

    def __init__(
        self, model: CausalLM, stage: Stage, packings: Sequence[Packing], states: list[Tensor], tick: Tick
    ) -> None:
        self.index = stage.number - 1
        self.path = stage.modules[0]
        prefix = f"{self.path}."
        layers = [layer for layer in linear_layers(model) if layer.path.startswith(prefix)]
        self.linears: tuple[LinearLayer, ...] = tuple(layers)
        self._model, self._stage = model, stage
        self._packings, self._states, self._tick = packings, states, tick

    def inputs(self, visit: Visit, paths: Sequence[str] | None = None) -> None:
        """Run the layer once over all batches, and show what its linear layers are given.

        Args:
            visit: sees each input as it is about to be used; it is kept nowhere else.
            paths: the linear layers to watch; by default all of `linears`.
        """
        watched = [layer for layer in self.linears if paths is None or layer.path in paths]
        present = 0

        def hook_of(path: str) -> Callable[..., Any]:
            return lambda _, inputs: visit(path, inputs[0], present)

        hooks = [layer.layer.register_forward_pre_hook(hook_of(layer.path)) for layer in watched]
        try:
            for number in range(len(self._states)):
                present = number
                self.output(number)
        finally:
            for hook in hooks:
                hook.remove()

    @paddle.no_grad()
    def output(self, number: int) -> Tensor:
        """What the layer, as it is now, gives for a batch: hidden states `[tokens, hidden]`."""
        self._tick()
        return self._stage.run(self._states[number], *self._model.prepare(self._packings[number]))

    def advance(self) -> None:
        """Replace the hidden states before the layer by those after it."""
        for number in range(len(self._states)):
            self._states[number] = self.output(number)


class Walk:
    """The decoder layers of a model, one after another. It can be walked once.

    Attributes:
        packings: how the tokens of each batch lie.
    """

    def __init__(self, model: CausalLM, batches: Sequence[Pass], tick: Tick = no_tick) -> None:
        """Embed all batches.

        Args:
            model: whole, in one process, without an adapter, a prefix and fused projections. It is put in
                evaluation mode.
            batches: the calibration data, of which only ids and packing are used.
            tick: called before each pass of a batch through a layer.

        Raises:
            ValueError: there is no batch, or it is another kind of model.
        """
        if not batches:
            raise ValueError("got no batch, expected at least one to calibrate with")
        if model.placement != WHOLE or model.adapter is not None or model.prefix is not None:
            raise ValueError("got a model in parts or with an adapter, expected a whole one; merge first")
        if any(isinstance(layer, Fused) for layer in model.sublayers()):
            raise ValueError("got fused projections, expected a model loaded without them")
        model.eval()
        self.packings = [batch.packing for batch in batches]
        self._model, self._tick = model, tick
        self._ids = [batch.ids for batch in batches]

    def __len__(self) -> int:
        """The number of decoder layers."""
        return len(self._model.stages()) - 2

    def __iter__(self) -> Iterator[Block]:
        """Each decoder layer; once the body is done with it, it runs again to feed the next one."""
        stages = self._model.stages()
        with paddle.no_grad():
            states = [stages[0].run(ids, None, _no_attention) for ids in self._ids]
        for stage in stages[1:-1]:
            block = Block(self._model, stage, self.packings, states, self._tick)
            yield block
            if stage is not stages[-2]:
                block.advance()


def _no_attention(*_: object) -> Tensor:
    raise NotImplementedError("an embedding attends to nothing")
