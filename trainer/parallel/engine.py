"""Runs passes in many processes, each of which has all stages of the model: any layout without a pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import paddle
from paddle import Tensor

from trainer.loop.engine import ShareOfLoss, evaluating
from trainer.models.base import CausalLM
from trainer.models.passes import Pass, Passes
from trainer.parallel.communication import sum_over_data
from trainer.parallel.layout import Layout
from trainer.parallel.update import Updater


class ParallelEngine:
    """An `Engine` in which pass number i belongs to the processes with share i (modulo shares) of the data.

    Where gradients or weights are spread over processes, which then communicate while the model runs, those
    without a pass of their own run another one whose gradients count nothing.

    Args:
        model: whole, or this process's part of every layer.
        layout: the place of this process.
        autocast: makes the context in which the model runs.

    Attributes:
        updater: what will change the weights; to be set before anything is trained, as soon as there is one.
    """

    def __init__(
        self,
        model: CausalLM,
        layout: Layout,
        autocast: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.model = model
        self.at_once = layout.topology.data_ways
        self.updater: Updater | None = None
        self._layout = layout
        self._autocast = autocast
        # Tokens that are split over a tensor-parallel group must divide by its size.
        self._multiple = layout.topology.tensor if layout.topology.sequence_parallel else 1

    def autocast(self) -> AbstractContextManager[None]:
        """See `Engine`."""
        return self._autocast()

    def outcomes(self, passes: Passes) -> list[Tensor]:
        """See `Engine`."""
        found: dict[int, Tensor] = {}
        with paddle.no_grad(), evaluating(self.model), self._autocast():
            for number in self._turns(len(passes)):
                outcome = self.model.run(self._made(passes, number or 0))
                if number is not None:
                    found[number] = outcome
        return self._everywhere(found, passes)

    def train(self, passes: Passes, share: ShareOfLoss, scale: float = 1.0) -> list[Tensor]:
        """See `Engine`."""
        if self.updater is None:
            raise ValueError("the engine has no updater, so it cannot train")
        # Fleet takes the mean of the gradients of all shares of the data.
        scale *= self._layout.topology.data_ways
        found: dict[int, Tensor] = {}
        for number in self._turns(len(passes)):
            work = None if number is None else self._made(passes, number)
            if self.updater.all_must_run and (work is None or not _is_labelled(work)):
                # Without labels a head of its own would get no gradient, for which others would wait.
                if number is not None:
                    found[number] = paddle.zeros([passes.sizes[number]])
                number, work = None, self._some_labelled(passes)
            if work is None:
                continue
            with self._autocast():
                outcome = self.updater.run(work)
            if number is None:
                (outcome.sum() * 0.0).backward()
                continue
            (share(number, outcome) * scale).backward()
            found[number] = outcome.detach()
        return self._everywhere(found, passes)

    def _turns(self, count: int) -> Iterator[int | None]:
        """The numbers of this process's passes; None stands for one that counts nothing."""
        ways, first = self._layout.topology.data_ways, self._layout.data_rank
        yield from range(first, count, ways)
        if self.updater is not None and self.updater.all_must_run and first >= count % ways > 0:
            yield None

    def _made(self, passes: Passes, number: int) -> Pass:
        work = passes[number]
        return work.padded(-(-work.tokens // self._multiple) * self._multiple)

    def _some_labelled(self, passes: Passes) -> Pass:
        """The first pass with labels; if there is none, just the first."""
        made = (self._made(passes, number) for number in range(len(passes)))
        return next(filter(_is_labelled, made), None) or self._made(passes, 0)

    def _everywhere(self, found: dict[int, Tensor], passes: Passes) -> list[Tensor]:
        """The outcomes of all passes, of which this process has found its own."""
        ends = np.cumsum([0, *passes.sizes])
        values = np.zeros(ends[-1])
        for number, outcome in found.items():
            values[ends[number] : ends[number + 1]] = outcome.numpy()
        values = sum_over_data(self._layout, values).astype(np.float32)
        return [paddle.to_tensor(values[start:stop]) for start, stop in itertools.pairwise(ends)]


def _is_labelled(work: Pass) -> bool:
    return bool((work.labels >= 0).any())
