"""Fleet's pipeline schedules, for a number of passes that changes from call to call."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from paddle.distributed import fleet
from paddle.distributed.fleet.meta_parallel.parallel_layers.pp_layers import PipelineLayer
from paddle.distributed.fleet.meta_parallel.pipeline_parallel import (
    PipelineParallel,
    PipelineParallelWithInterleave,
    PipelineParallelWithInterleaveFthenB,
)

from trainer.parallel.layout import Layout

#: Data and labels of every pass: chunks know theirs without being told.
_NO_DATA = repeat((None, None))


class Schedule:
    """Runs the chunks of a pipeline in an order that keeps all its processes busy.

    * One chunk in each process: one forward, one backward (1F1B; Narayanan et al., arXiv 2006.09503).
    * Several: the interleaved form of it (Narayanan et al., arXiv 2104.04473) for at least twice as many
      passes as processes, and for fewer all forwards before all backwards.
    """

    def __init__(self, layer: PipelineLayer, layout: Layout) -> None:
        self._layout = layout
        kinds: tuple[type[PipelineParallel], ...] = (PipelineParallel,)
        if layout.topology.virtual > 1:
            kinds = (PipelineParallelWithInterleaveFthenB, PipelineParallelWithInterleave)
        self._runners: list[Any] = [kind(layer, layout.hcg, strategy=_strategy(layout)) for kind in kinds]

    def passes(self, wanted: int) -> int:
        """How many passes have to be run for so many to be done."""
        size, virtual = self._layout.topology.pipeline, self._layout.topology.virtual
        if virtual == 1:
            return max(wanted, 1)
        return size if wanted <= size else max(wanted, 2 * size)

    def train(self, passes: int) -> None:
        """Run so many passes forward and backward; their losses, not their mean, are what is derived."""
        runner = self._runner(passes)
        runner.set_virtual_pipeline_rank(0)
        runner.forward_backward_pipeline(_NO_DATA, None)

    def evaluate(self, passes: int) -> None:
        """Run so many passes forward."""
        runner = self._runner(passes)
        runner.eval_batch(_NO_DATA, compute_loss=True)
        runner._p2p_helper.clear_meta_cache()

    def _runner(self, passes: int) -> Any:
        runner = self._runners[-1 if passes >= 2 * self._layout.topology.pipeline else 0]
        runner.accumulate_steps = passes
        runner._init_user_hooks()
        return runner


def _strategy(layout: Layout) -> Any:
    """What the schedules ask a strategy for."""
    topology = layout.topology
    strategy: Any = fleet.DistributedStrategy()
    strategy.pipeline_configs = {
        # The interleaved schedule checks at its start that there are this many.
        "accumulate_steps": 2 * topology.pipeline,
        "micro_batch_size": 1,
        # Processes that split layers hold the same hidden states, so each sends a part of them. Not so when
        # they split the sequence.
        "enable_partial_send_recv": not topology.sequence_parallel,
    }
    options = strategy.hybrid_configs["pp_configs"]
    options.delay_scale_loss = True  # divides gradients by the number of passes only in Fleet's own step
    options.clear_every_step_cache = True  # the next call sends other shapes
    return strategy
