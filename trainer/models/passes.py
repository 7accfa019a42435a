"""One forward pass of a micro-batch, and what is made of it.

A pass holds packed tokens and says what becomes of the final hidden states: its outcome, a float32 vector.
Whoever runs the model (one process, a pipeline) needs to know nothing else about a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import paddle
from paddle import Tensor

from trainer.models.layers import Head
from trainer.ops.packing import Packing

NO_LABEL = -100


@dataclass(frozen=True)
class Pass:
    """Packed tokens on their way through a model.

    Attributes:
        ids: int64 `[tokens]`.
        packing: how they lie.
        labels: int64 `[tokens]`, the token that should follow each, -100 where there is none.
    """

    ids: Tensor
    packing: Packing
    labels: Tensor

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return self.ids.shape[0]

    @property
    def size(self) -> int:
        """Length of the outcome."""
        raise NotImplementedError

    def finish(self, head: Head, hidden: Tensor) -> Tensor:
        """The outcome, float32 `[size]`, of the final hidden states `[tokens, width]`."""
        raise NotImplementedError

    def padded(self, tokens: int) -> Self:
        """The same pass with `tokens` tokens: more of them, in a document of their own, without labels.

        Everything but speed stays as it was.
        """
        more = tokens - self.tokens
        if more < 0:
            raise ValueError(f"got {tokens} tokens for a pass that has {self.tokens}")
        if more == 0:
            return self
        return replace(
            self,
            ids=_extended(self.ids, more, 0),
            packing=self.packing.extended(more),
            labels=_extended(self.labels, more, NO_LABEL),
        )


@dataclass(frozen=True)
class LossPass(Pass):
    """Gives the sum of the losses of all label tokens, `[1]`."""

    @property
    def size(self) -> int:
        return 1

    def finish(self, head: Head, hidden: Tensor) -> Tensor:
        return head(hidden, self.labels, "loss")


@dataclass(frozen=True)
class MetricsPass(Pass):
    """Gives that sum and how many labels were the most likely token, `[2]`; not differentiable."""

    @property
    def size(self) -> int:
        return 2

    def finish(self, head: Head, hidden: Tensor) -> Tensor:
        return head(hidden, self.labels, "metrics")


@dataclass(frozen=True)
class LogProbabilityPass(Pass):
    """Gives the log-probability of each response, the sum over its labels, `[count]`.

    Attributes:
        responses: int64 `[tokens]`, the number (1 to `count`) of the response that a label belongs to, or 0.
        count: how many responses there are.
    """

    responses: Tensor
    count: int

    @property
    def size(self) -> int:
        return self.count

    def finish(self, head: Head, hidden: Tensor) -> Tensor:
        of_tokens = head(hidden, self.labels, "log_probabilities")
        sums = paddle.zeros([self.count + 1], "float32")
        return paddle.scatter_nd_add(sums, self.responses.unsqueeze(1), of_tokens)[1:]

    def padded(self, tokens: int) -> Self:
        longer = super().padded(tokens)
        return replace(longer, responses=_extended(self.responses, tokens - self.tokens, 0))


class Passes:
    """The passes of several micro-batches, each made when it is asked for.

    Every process knows the sizes of all outcomes; it makes only the passes that it runs.

    Attributes:
        sizes: length of each outcome.
    """

    def __init__(self, sizes: Sequence[int], make: Callable[[int], Pass]) -> None:
        self.sizes = tuple(sizes)
        self._make = make

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: int) -> Pass:
        return self._make(range(len(self.sizes))[number])

    def __iter__(self) -> Iterator[Pass]:
        return (self._make(number) for number in range(len(self.sizes)))


def _extended(values: Tensor, more: int, fill: int) -> Tensor:
    if more == 0:
        return values
    return paddle.to_tensor(np.concatenate([values.numpy(), np.full(more, fill, np.int64)]))
