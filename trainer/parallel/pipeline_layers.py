"""A model as Paddle's `PipelineLayer` takes it: one layer for each chunk of stages between two messages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from paddle import Tensor, nn
from paddle.distributed.fleet.meta_parallel.parallel_layers.pp_layers import (
    LayerDesc,
    PipelineLayer,
    SharedLayerDesc,
)

from trainer.models.base import CausalLM
from trainer.models.passes import Pass
from trainer.parallel.communication import any_rank
from trainer.parallel.layout import Layout
from trainer.parallel.pipeline_stages import chunks_of, stages_of

#: `finish(number, hidden)`: the loss, a float32 scalar, of a pass with these final hidden states.
Finish = Callable[[int, Tensor], Tensor]


def _nothing(number: int, hidden: Tensor) -> Tensor:
    raise RuntimeError("nothing is to be done")


class Work:
    """The passes that a pipeline goes through, and how far it has come with them.

    Every process of the pipeline has all of them, and every chunk takes them in their order. So hidden states
    are all that travels: ids, labels and tables are there already.

    Attributes:
        model: the part of the model that is here.
        autocast: makes the context in which the model runs.
        passes: what to go through.
        gradients: whether a backward pass follows.
    """

    def __init__(self, model: CausalLM, autocast: Callable[[], AbstractContextManager[None]]) -> None:
        self.model = model
        self.autocast = autocast
        self.passes: Sequence[Pass] = ()
        self.gradients = False
        self._finish: Finish = _nothing
        self._begun: dict[int, int] = {}
        self._finished = 0

    def begin(self, passes: Sequence[Pass], finish: Finish, gradients: bool) -> None:
        """Go through other passes; `finish` is called in the last process, once for each, in their order."""
        self.passes, self._finish, self.gradients = passes, finish, gradients
        self._begun, self._finished = {}, 0

    def end(self) -> None:
        """Forget the passes."""
        self.passes, self._finish = (), _nothing

    def next_pass(self, chunk: int) -> Pass:
        """The pass that comes next in a chunk."""
        number = self._begun.get(chunk, 0)
        self._begun[chunk] = number + 1
        return self.passes[number]

    def loss(self, hidden: Tensor, _labels: None) -> Tensor:
        """The loss of the pass whose final hidden states these are."""
        number, self._finished = self._finished, self._finished + 1
        return self._finish(number, hidden)


class Chunk(nn.Layer):
    """Consecutive stages of a model."""

    def __init__(self, number: int, stages: range, work: Work) -> None:
        super().__init__()
        self._number = number
        self._stages = [stage for stage in work.model.stages() if stage.number in stages]
        self._work = work
        layers = dict(work.model.named_sublayers())
        for path in (path for stage in self._stages for path in stage.modules):
            self.add_sublayer(path.replace(".", "_"), layers[path])
        if stages.stop > work.model.config.num_hidden_layers + 1 and self._stages:
            self.add_sublayer("lm_head", work.model.lm_head)

    def forward(self, hidden: Tensor | None) -> Tensor:
        """Hidden states `[tokens, width]` from those of the chunk before; the first chunk is given none."""
        work = self._work.next_pass(self._number)
        x = work.ids if hidden is None else hidden
        with self._work.autocast():
            context, attend = self._work.model.prepare(work.packing)
            for stage in self._stages:
                x = stage.run(x, context, attend)
        if self._work.gradients and x.stop_gradient:
            # Nothing so far is trained, but the schedules send a gradient back for every message.
            x = x.detach()
            x.stop_gradient = False
        return x


class TiedWeight(nn.Layer):
    """Stands beside the first and the last chunk, which both use the same parameter, and does nothing.

    Paddle adds up the gradients of a parameter that such layers share.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.weight = tied_weight(work.model)

    def forward(self, x: Tensor | None) -> Tensor | None:
        """The same `x`."""
        return x


def tied_weight(model: CausalLM) -> Tensor | None:
    """The parameter that is the embedding and the head, where the model has one and it is here."""
    if not model.config.tie_word_embeddings:
        return None
    if model.placement.has(model.config.num_hidden_layers + 1):
        return model.lm_head.weight
    if not model.placement.has(0):
        return None
    (embedding, *_) = model.stages()[0].modules
    return dict(model.named_sublayers())[embedding].weight


def pipeline_layer(work: Work, layout: Layout) -> PipelineLayer:
    """The chunks that are in this process, in the middle of their pipeline.

    Raises:
        ValueError: the model holds other stages than its place in the pipeline asks for.
    """
    model, topology, layers = work.model, layout.topology, work.model.config.num_hidden_layers
    expected = stages_of(topology, layout.pipeline_rank, layers)
    found = {stage.number for stage in model.stages()}
    if found != expected:
        raise ValueError(f"the model has stages {sorted(found)}, expected {sorted(expected)}")
    parts: list[Any] = [
        LayerDesc(Chunk, number, stages, work) for number, stages in enumerate(chunks_of(topology, layers))
    ]
    weight = tied_weight(model)
    if any_rank(layout, weight is not None and not weight.stop_gradient):
        ends = [SharedLayerDesc("tied", TiedWeight, None, "weight", work) for _ in range(2)]
        parts = [ends[0], *parts, ends[1]]
        if weight is not None:
            # Paddle means to set this, but looks for the parameter under a wrong name. Its gradient norm and
            # others go by it: the first copy counts.
            weight.is_firstly_shared = layout.is_first_stage
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No shared comm")
        return PipelineLayer(
            parts,
            topology=layout.hcg.topology(),
            loss_fn=work.loss,
            seg_method=f"layer:^{Chunk.__name__}$",
            num_virtual_pipeline_stages=topology.virtual,
        )


def shared_weights(layer: PipelineLayer) -> list[Tensor]:
    """The parameters here that another process of the pipeline has too; their gradients are added up."""
    return [tied.weight for tied in layer.shared_layers.values() if tied.weight is not None]
