"""What is kept of the inputs of linear layers while calibration data runs through.

The extremes of every channel in every document tell the range of the whole input under any factors and
shifts, so a layer needs to run once only; a sample of tokens tells what an error does to outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import paddle
from paddle import Tensor

from trainer.quantization.formats import WHOLE_ROW


class ActMethod(StrEnum):
    """How the range of a layer's input is observed.

    ABS_MAX: the largest absolute value. AVG: the largest of each document, averaged over the documents of a
    batch, then over batches.
    """

    ABS_MAX = "abs_max"
    AVG = "avg"


class WeightMethod(StrEnum):
    """What of a weight matrix has a scale of its own: every output, or groups of inputs of every output."""

    CHANNEL_WISE = "abs_max_channel_wise"
    GROUPWISE = "groupwise"

    def group_size(self, groupwise: int) -> int:
        """The group size, where groups have `groupwise` inputs."""
        return groupwise if self is WeightMethod.GROUPWISE else WHOLE_ROW


@dataclass(frozen=True)
class InputStatistics:
    """What is known of a layer's input.

    Attributes:
        low: float32 `[documents, in]`, the smallest value of each channel in each document.
        high: the largest one.
        batch: int64 `[documents]`, the batch of each document.
        mean_abs: float64 `[in]`, the mean absolute value of each channel.
        sample: float32 `[sampled, in]`, tokens out of the batches.
    """

    low: np.ndarray
    high: np.ndarray
    batch: np.ndarray
    mean_abs: np.ndarray
    sample: Tensor

    @property
    def channel_absmax(self) -> np.ndarray:
        """The largest absolute value of each channel, `[in]`."""
        return np.maximum(-self.low.min(axis=0), self.high.max(axis=0))

    @property
    def dead_channels(self) -> int:
        """How many channels are always zero."""
        return int((self.channel_absmax == 0).sum())

    def first(self, batches: int) -> InputStatistics:
        """Of the first batches; means and the sample stay."""
        kept = self.batch < batches
        return replace(self, low=self.low[kept], high=self.high[kept], batch=self.batch[kept])

    def moved(self, shifts: np.ndarray | None = None, factors: np.ndarray | None = None) -> InputStatistics:
        """Of the input `(x - shifts) / factors`, both `[in]`, factors above 0. `mean_abs` is only divided."""
        by = np.zeros(1, np.float32) if shifts is None else shifts.astype(np.float32)
        over = np.ones(1, np.float32) if factors is None else factors.astype(np.float32)
        return replace(
            self,
            low=(self.low - by) / over,
            high=(self.high - by) / over,
            mean_abs=self.mean_abs / over,
            sample=(self.sample - paddle.to_tensor(by)) / paddle.to_tensor(over),
        )

    def absmax(self, method: ActMethod, factors: np.ndarray | None = None) -> float:
        """The range of the whole input, divided by `factors [in]`."""
        of_channels = np.maximum(-self.low, self.high)
        if factors is not None:
            of_channels = of_channels / factors
        of_documents = of_channels.max(axis=1)
        if method is ActMethod.ABS_MAX:
            return float(of_documents.max())
        return float(np.mean([of_documents[self.batch == number].mean() for number in np.unique(self.batch)]))


class InputObserver:
    """Collects `InputStatistics` of one input."""

    def __init__(self, batches: int, sample_tokens: int, last_only: bool = False) -> None:
        """Begin.

        Args:
            batches: how many there will be.
            sample_tokens: how many tokens to keep, evenly out of all batches.
            last_only: keep them out of the last batch only.
        """
        self._batches, self._last_only = batches, last_only
        self._quota = sample_tokens if last_only else -(-sample_tokens // batches)
        self._low: list[np.ndarray] = []
        self._high: list[np.ndarray] = []
        self._batch: list[int] = []
        self._sample: list[Tensor] = []
        self._abs_sum: Tensor | None = None
        self._tokens = 0

    @paddle.no_grad()
    def add(self, x: Tensor, lengths: Sequence[int], number: int) -> None:
        """Take in the input `[tokens, in]` of a batch whose documents have these lengths."""
        x = x.astype("float32")
        start = 0
        for length in lengths:
            document = x[start : start + length]
            self._low.append(document.min(axis=0).numpy())
            self._high.append(document.max(axis=0).numpy())
            self._batch.append(number)
            start += length
        total = x.abs().sum(axis=0)
        self._abs_sum = total if self._abs_sum is None else self._abs_sum + total
        self._tokens += x.shape[0]
        if not self._last_only or number == self._batches - 1:
            count = min(self._quota, x.shape[0])
            places = np.linspace(0, x.shape[0] - 1, count).round().astype(np.int64)
            self._sample.append(paddle.index_select(x, paddle.to_tensor(places)))

    def statistics(self) -> InputStatistics:
        """What was collected.

        Raises:
            ValueError: nothing was.
        """
        if self._abs_sum is None:
            raise ValueError("got no input, expected a batch at least")
        return InputStatistics(
            np.stack(self._low),
            np.stack(self._high),
            np.array(self._batch),
            self._abs_sum.numpy().astype(np.float64) / self._tokens,
            paddle.concat(self._sample),
        )
