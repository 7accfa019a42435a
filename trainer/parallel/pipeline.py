"""Runs passes through a model whose stages are spread over the processes of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import paddle
from paddle import Tensor

from trainer.loop.engine import ShareOfLoss, evaluating
from trainer.models.base import CausalLM
from trainer.models.passes import Pass, Passes
from trainer.parallel.communication import broadcast_from_last_stage, sum_over_data
from trainer.parallel.layout import Layout
from trainer.parallel.pipeline_layers import Work, pipeline_layer, shared_weights
from trainer.parallel.pipeline_schedule import Schedule

_FULL_PIPELINES = 4
"""With so many passes for each process of a pipeline, it waits for a fifth of the time at most."""


class PipelineEngine:
    """An `Engine` over pipelines, each of which takes every so many-th pass.

    Passes of one call are padded to the same number of tokens, so that all messages have one shape. Where
    there are too few passes, one is run again with a loss of zero. `train` is called once for each step of
    the optimizer: it adds up the gradients of a weight that two processes have, and would do so again.

    Args:
        model: the stages of this process, as `stages_of` says.
        layout: the place of this process.
        autocast: makes the context in which the model runs.

    Attributes:
        tied: Paddle's name of the parameter that is trained in the first and in the last process of the
            pipeline, where there is one and it is here. Its gradient in both is the sum over both.
    """

    def __init__(
        self,
        model: CausalLM,
        layout: Layout,
        autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.model = model
        topology = layout.topology
        self.at_once = topology.data_ways * topology.pipeline * _FULL_PIPELINES
        self._layout = layout
        self._autocast = autocast
        self._work = Work(model, autocast)
        layer = pipeline_layer(self._work, layout)
        self.tied = frozenset(weight.name for weight in shared_weights(layer))
        self._schedule = Schedule(layer, layout)

    def autocast(self) -> AbstractContextManager[None]:
        """See `Engine`."""
        return self._autocast()

    def outcomes(self, passes: Passes) -> list[Tensor]:
        """See `Engine`."""
        if not len(passes):
            return []
        nothing = paddle.zeros([], "float32")
        with paddle.no_grad(), evaluating(self.model):
            return self._run(passes, lambda number, outcome: nothing, gradients=False)

    def train(self, passes: Passes, share: ShareOfLoss, scale: float = 1.0) -> list[Tensor]:
        """See `Engine`."""
        # The optimizer takes the mean of the gradients of all pipelines.
        scale *= self._layout.topology.data_ways
        return self._run(passes, lambda number, outcome: share(number, outcome) * scale, gradients=True)

    def _run(self, passes: Passes, share: ShareOfLoss, gradients: bool) -> list[Tensor]:
        ways = self._layout.topology.data_ways
        numbers = range(self._layout.data_rank, len(passes), ways)
        outcomes: dict[int, Tensor] = {}

        def finish(turn: int, hidden: Tensor) -> Tensor:
            with self._autocast():
                outcome = self._work.passes[turn].finish(self.model.lm_head, hidden)
            if turn >= len(numbers):
                return outcome.sum() * 0.0
            outcomes[numbers[turn]] = outcome.detach()
            return share(numbers[turn], outcome)

        turns = self._schedule.passes(-(-len(passes) // ways))
        self._work.begin(
            self._filled([passes[number] for number in numbers or [0]], turns), finish, gradients
        )
        try:
            (self._schedule.train if gradients else self._schedule.evaluate)(turns)
        finally:
            self._work.end()
        return self._everywhere(outcomes, passes.sizes)

    def _filled(self, passes: list[Pass], turns: int) -> list[Pass]:
        """As many passes as there are turns, all of one length."""
        topology = self._layout.topology
        step = topology.tensor if topology.sequence_parallel else 1
        tokens = -(-max(work.tokens for work in passes) // step) * step
        padded = [work.padded(tokens) for work in passes]
        return padded + padded[:1] * (turns - len(padded))

    def _everywhere(self, outcomes: dict[int, Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """All outcomes, from those that this process has come to in the last stage of its pipeline."""
        parts = [outcomes.get(number, paddle.zeros([size])) for number, size in enumerate(sizes)]
        together = paddle.concat(parts)
        broadcast_from_last_stage(self._layout, [together])
        together = paddle.to_tensor(sum_over_data(self._layout, together.numpy()), dtype="float32")
        return list(paddle.split(together, list(sizes)))
