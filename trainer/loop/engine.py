"""How forward and backward passes run: here in one process, elsewhere over many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Protocol, TypeVar

import paddle
from paddle import Tensor

from trainer.models.base import CausalLM
from trainer.models.passes import Passes

Item = TypeVar("Item")

#: `share(number, outcome)`: what micro-batch `number`, whose outcome this is, adds to the loss of a step; a
#: float32 scalar, differentiable. Shares simply add up.
ShareOfLoss = Callable[[int, Tensor], Tensor]


class Engine(Protocol):
    """Runs passes through a model.

    Over many processes all of them call the same method with the same passes, and all of them get the same
    results: each runs its own part.
    """

    @property
    def model(self) -> CausalLM:
        """The model, or the part of it that is here."""
        ...

    @property
    def at_once(self) -> int:
        """How many passes it takes to keep every process busy."""
        ...

    def autocast(self) -> AbstractContextManager[None]:
        """The context in which the model runs."""
        ...

    def outcomes(self, passes: Passes) -> list[Tensor]:
        """The outcome of every pass, without gradients and without dropout."""
        ...

    def train(self, passes: Passes, share: ShareOfLoss, scale: float = 1.0) -> list[Tensor]:
        """Run every pass forward and backward.

        The gradients of the sum of all shares, times `scale`, are then added to those of the parameters, as
        far as the optimizer that belongs to this engine does not finish that.

        Returns:
            The outcome of every pass, detached.
        """
        ...


class SingleEngine:
    """Runs passes one after another in this process.

    Args:
        model: the whole model.
        autocast: makes the context in which the model runs.
    """

    def __init__(
        self, model: CausalLM, autocast: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self.model = model
        self.at_once = 1
        self._autocast = autocast

    def autocast(self) -> AbstractContextManager[None]:
        """See `Engine`."""
        return self._autocast()

    def outcomes(self, passes: Passes) -> list[Tensor]:
        """See `Engine`."""
        with paddle.no_grad(), evaluating(self.model), self._autocast():
            return [self.model.run(work) for work in passes]

    def train(self, passes: Passes, share: ShareOfLoss, scale: float = 1.0) -> list[Tensor]:
        """See `Engine`."""
        outcomes = []
        for number, work in enumerate(passes):
            with self._autocast():
                outcome = self.model.run(work)
            part = share(number, outcome)
            (part if scale == 1.0 else part * scale).backward()
            outcomes.append(outcome.detach())
        return outcomes


def groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """`size` items at a time; fewer at the end."""
    remaining = iter(items)
    while group := list(islice(remaining, size)):
        yield group


@contextmanager
def evaluating(model: CausalLM) -> Iterator[None]:
    """Inside, the model is in evaluation mode."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        if training:
            model.train()
